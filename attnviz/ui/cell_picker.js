const GROUND = "--st-background-color";
const SLANTED_FROM = 20; // px of a column that leave room for a label at 45 degrees
const SLANTED_WIDTH = 420; // px; in less room the labels stand upright and leave more to the picture
const THINNED_ROOM = 16; // px along an axis for a label where not all have room anyway
const LABEL_ENDS = 13; // px before and after a label
const EDGE = 10; // px beside the picture for frames and the ring of the focus
const LINE_HEIGHT = 1.3;
const CORNER = 76; // px, the least width of a title in the corner of the axes
const DIAGONAL = Math.SQRT1_2;
const MOVES = {
  ArrowLeft: ([query, key]) => [query, key - 1],
  ArrowRight: ([query, key]) => [query, key + 1],
  ArrowUp: ([query, key]) => [query - 1, key],
  ArrowDown: ([query, key]) => [query + 1, key],
  Home: ([query]) => [query, 0],
  End: ([query], [, keys]) => [query, keys - 1],
};

class Picker extends Drawing {
  constructor(root) {
    super(root);
    this.plot = this.part(".plot");
    this.pointed = null; // a cell by its places, not positions: the first row and column are 0
    this.listen();
    this.watchRoom();
  }

  listen() {
    this.plot.addEventListener("keydown", (event) => this.pressed(event));
    this.plot.addEventListener("click", (event) => this.choose(this.cellAt(event)));
    this.plot.addEventListener("pointermove", (event) => this.pointAt(event));
    this.plot.addEventListener("pointerleave", () => this.point(null));
  }

  // --- what Python sends

  receive(data, tell) {
    const before = this.data;
    this.data = data;
    this.shape = [data.queries.words.length, data.keys.words.length];
    if (before?.of !== data.of) {
      this.pointed = null;
    }
    if (before?.levels.cells !== data.levels.cells) {
      this.cells = decoded(data.levels);
    }
    this.dress();
    this.arrange();
    this.choosing.receive(data, tell);
  }

  /** The places of the chosen cell; null where there is none among these tokens. */
  get chosen() {
    const { chosen, of } = this.choosing;
    if (chosen === null || of !== this.data?.of) {
      return null;
    }
    const axes = [this.data.queries, this.data.keys];
    const places = axes.map(({ positions }, axis) => positions.indexOf(chosen[axis]));
    return places.includes(-1) ? null : places;
  }

  // --- what a visitor does

  pressed(event) {
    const move = MOVES[event.key];
    if (!move || !isPlain(event)) {
      return;
    }
    event.preventDefault();
    event.stopPropagation(); // at the edge of the picture too: arrow keys may turn the page's steps
    this.pointed = null;
    this.choose(move(this.chosen ?? [0, 0], this.shape));
  }

  cellAt(event) {
    const box = this.plot.getBoundingClientRect();
    const down = ((event.clientY - box.top) / box.height) * this.shape[0];
    const across = ((event.clientX - box.left) / box.width) * this.shape[1];
    return this.within([Math.floor(down), Math.floor(across)]);
  }

  within(cell) {
    return cell.map((place, axis) => Math.min(Math.max(place, 0), this.shape[axis] - 1));
  }

  pointAt(event) {
    if (event.pointerType !== "touch") {
      this.point(this.cellAt(event));
    }
  }

  point(cell) {
    this.pointed = cell;
    this.placeFrames();
    this.read();
  }

  choose(asked) {
    const cell = this.within(asked);
    if (String(cell) === String(this.chosen)) {
      this.show();
      return;
    }
    const query = this.data.queries.positions[cell[0]];
    const key = this.data.keys.positions[cell[1]];
    this.choosing.choose([query, key], { query, key });
  }

  // --- what is on screen

  /** All that depends neither on the room there is nor on the chosen cell. */
  dress() {
    const { data, root } = this;
    root.style.setProperty("--font-size", `${data.look.font_size}px`);
    root.style.setProperty("--title-size", `${data.look.title_size}px`);
    root.style.setProperty("--real", data.look.real);
    this.plot.setAttribute("aria-label", data.label);
    this.part(".key-title").textContent = data.keys.title;
    this.part(".query-title").textContent = data.queries.title;
    this.part(".low").textContent = data.low_written;
    this.part(".top").textContent = data.top_written;
    this.part(".scale .why").textContent = data.hidden;
    this.part(".scale > .hidden").hidden = !this.cells.includes(NaN);
    paintRamp(this.part(".scale canvas"), data.palette);
  }

  arrange() {
    if (!this.data || !this.root.clientWidth) {
      return;
    }
    this.room = roomOf(this.root, this.data);
    const { room, root } = this;
    for (const [name, pixels] of Object.entries(room.pixels)) {
      root.style.setProperty(`--${name}`, `${pixels}px`);
    }
    root.classList.toggle("cornered", room.cornered);
    root.style.setProperty("--turn", room.slanted ? "-45deg" : "-90deg");
    this.draw();
    this.show();
  }

  draw() {
    const { cells, data, shape } = this;
    const high = data.top;
    const low = data.levels.low < 0 ? -high : 0;
    const screen = [this.room.pixels["plot-height"], this.room.pixels["plot-width"]];
    const dots = screen.map((length, axis) => {
      return Math.min(shape[axis], Math.max(1, Math.floor(length * devicePixelRatio)));
    });
    const ground = low < 0 ? channels(getComputedStyle(this.root).getPropertyValue(GROUND)) : null;
    const drawn = String([data.levels.cells, data.top, data.palette, dots, ground]);
    if (drawn === this.drawn) {
      return;
    }
    this.drawn = drawn;
    const shades = merged(cells, shape, dots).map((cell) => {
      return Math.min(255, Math.round(((cell - low) / (high - low)) * 255));
    });
    this.part(".scale > .merged").hidden = !data.downsampled && String(dots) === String(shape);
    paint(this.part(".plot > canvas"), dots, shades, data.palette, ground);
  }

  /** All that depends on the chosen cell. */
  show() {
    if (!this.room) {
      return; // it lies where nothing is shown as yet
    }
    this.placeFrames();
    this.write("queries", 0, ".query-labels", "top");
    this.write("keys", 1, ".key-labels", "left");
    this.read();
    this.part("#told").textContent = this.chosen ? this.spoken(this.chosen) : "";
  }

  placeFrames() {
    const [query, key] = this.chosen ?? [null, null];
    this.placeFrame(".row", query, null);
    this.placeFrame(".column", null, key);
    this.placeFrame(".chosen", query, key);
    this.placeFrame(".pointed", ...(this.pointed ?? [null, null]));
  }

  /** A frame reaches over the whole axis whose place is null. */
  placeFrame(selector, row, column) {
    const [rows, columns] = this.shape;
    const frame = this.part(selector);
    frame.hidden = row === null && column === null;
    frame.style.top = `${((row ?? 0) / rows) * 100}%`;
    frame.style.height = row === null ? "100%" : `${100 / rows}%`;
    frame.style.left = `${((column ?? 0) / columns) * 100}%`;
    frame.style.width = column === null ? "100%" : `${100 / columns}%`;
  }

  /** The labels of one axis that have room, and that of the chosen cell in any case. */
  write(name, axis, selector, side) {
    const { words } = this.data[name];
    const { cell, step, font } = this.room.labels[axis];
    const chosen = this.chosen?.[axis];
    const near = (place) => place !== chosen && Math.abs(place - chosen) * cell < font + 2;
    const written = (place) => place === chosen || (place % step === 0 && !near(place));
    const labels = words.flatMap((word, place) => {
      if (!written(place)) {
        return [];
      }
      const label = document.createElement("span");
      label.className = place === chosen ? "label bold" : "label";
      label.textContent = word;
      label.style[side] = `${(place + 0.5) * cell}px`;
      label.style.fontSize = `${font}px`;
      return [label];
    });
    this.part(selector).replaceChildren(...labels);
  }

  read() {
    const cell = this.pointed ?? this.chosen;
    this.part(".reading").style.visibility = cell ? "visible" : "hidden";
    if (cell) {
      this.part(".reading > .query").textContent = `query ${this.token("queries", cell[0])}`;
      this.part(".reading > .key").textContent = `key ${this.token("keys", cell[1])}`;
      this.part(".reading > .weight").textContent = `:  ${this.weight(cell) ?? "hidden"}`;
    }
  }

  spoken(cell) {
    const weight = this.weight(cell);
    const end = weight === null ? this.data.hidden : `${this.data.quantity} ${weight}`;
    return `query ${this.token("queries", cell[0])}, key ${this.token("keys", cell[1])}, ${end}`;
  }

  token(name, place) {
    const { positions, last, words } = this.data[name];
    const [from, to] = [positions[place], last[place]];
    const named = from === to ? from : `${from}–${to}`;
    return `${named} ${words[place]}${this.data.downsampled && from < to ? " …" : ""}`;
  }

  weight([query, key]) {
    const cell = this.cells[query * this.shape[1] + key];
    if (Number.isNaN(cell)) {
      return null;
    }
    const written = cell.toFixed(this.data.levels.decimals).replace("-", "−");
    return this.data.downsampled ? `at most ${written}` : written;
  }
}

/** Where there are more cells than dots, each dot has the one of its cells furthest from 0. */
function merged(cells, [rows, columns], [down, across]) {
  const dots = new Float64Array(down * across).fill(NaN);
  for (let row = 0; row < rows; row += 1) {
    const first = Math.floor((row * down) / rows) * across;
    for (let column = 0; column < columns; column += 1) {
      const dot = first + Math.floor((column * across) / columns);
      const cell = cells[row * columns + column];
      if (Number.isNaN(dots[dot]) || Math.abs(cell) > Math.abs(dots[dot])) {
        dots[dot] = cell;
      }
    }
  }
  return dots;
}

// --- how the room is shared: nothing in it depends on the chosen cell, so that nothing jumps

function roomOf(root, data) {
  const { look, queries, keys } = data;
  const lengths = lengthsIn(root, look.font_size);
  const limit = Math.min(look.label_limit, 0.24 * root.clientWidth);
  const shortened = (words) => lengths(words).map((length) => Math.min(length, limit));
  const given = {
    look,
    limit,
    width: root.clientWidth,
    shape: [queries.words.length, keys.words.length],
    line: LINE_HEIGHT * look.font_size,
    title: lengths([queries.title])[0],
    queryLabels: shortened(queries.words),
    keyLabels: shortened(keys.words),
  };
  const upright = [1, 2].map((lines) => plotOf(given, lines));
  return upright.find((room) => room.holdsTitle) ?? plotOf(given, 0);
}

/** Where the picture lies if the title of the queries takes so many upright lines beside it.
 *
 * Beside a flat picture it has no place: with no such line it stands in the corner of the axes.
 */
function plotOf(given, lines) {
  const { width, shape, line, queryLabels, title, limit } = given;
  const beside = lines * line + 4;
  const labels = LABEL_ENDS + Math.max(...queryLabels, lines ? 0 : CORNER);
  const left = beside + labels;
  const slant = sidesOf(given, width - left - EDGE - overhang(given));
  const slanted = width >= SLANTED_WIDTH && slant[1] / shape[1] >= SLANTED_FROM;
  const [high, wide] = slanted ? slant : sidesOf(given, width - left - EDGE);
  const corner = lines ? 0 : (Math.ceil(title / (0.7 * left)) - 1) * line;
  return {
    slanted,
    cornered: lines === 0,
    holdsTitle: title <= lines * 0.9 * high,
    labels: [high / shape[0], wide / shape[1]].map((cell, axis) => {
      return labelsOf(cell, shape[axis], given.look);
    }),
    pixels: {
      "query-title": beside,
      "query-labels": labels,
      "key-labels": Math.max(heightOfLabels(given, slanted), corner),
      "plot-width": wide,
      "plot-height": high,
      "key-title": width - left,
      "label-limit": limit,
    },
  };
}

/** Cells are square, if that leaves the picture wide and high enough. */
function sidesOf({ look, shape }, room) {
  const [high, wide] = shape.map((count) => Math.max(count / Math.max(...shape), look.flattest));
  const side = Math.max(40, Math.min(look.side, room / wide));
  return [side * high, side * wide];
}

/** How far slanted labels reach beyond the last column, if columns are as narrow as may be. */
function overhang({ keyLabels, line }) {
  const beyond = keyLabels.map((length, place) => {
    return DIAGONAL * (length + line / 2) - (keyLabels.length - place - 0.5) * SLANTED_FROM;
  });
  return Math.max(0, ...beyond);
}

function heightOfLabels({ keyLabels, line }, slanted) {
  const longest = Math.max(...keyLabels);
  return LABEL_ENDS + (slanted ? DIAGONAL * (longest + line / 2) : longest);
}

/** Which labels of an axis are written, and how large. */
function labelsOf(cell, count, look) {
  const all = cell >= look.label_room && count <= look.labelled;
  const fewest = Math.max(Math.ceil(count / look.labelled), Math.ceil(THINNED_ROOM / cell));
  return {
    cell,
    step: all ? 1 : fewest,
    font: all ? Math.min(look.font_size, 0.9 * cell) : look.font_size,
  };
}

/** How long words are in bold: any may be the chosen one. */
function lengthsIn(root, fontSize) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `700 ${fontSize}px ${getComputedStyle(root).fontFamily}`;
  return (words) => words.map((word) => Math.ceil(pen.measureText(word).width) + 1);
}

export default mounted(Picker);
