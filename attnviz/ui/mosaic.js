const HIDDEN = 254; // in the place of a shade
const NARROWEST = 10; // px of a head; where it would be less, the part scrolls
const WIDEST = 80; // px of a head
const TALL = 720; // px, the height of a part that is sought
const LOWEST = 20; // px of a head that this may cost
const NAMED = 32; // px, the least width of a head that has its name under it
const LINE = 18; // px of a line of labels
const LABELS = 46; // px left of the heads, for the numbers of layers and the names of axes
const FAMILY_LABELS = 62; // px, where key and value heads are named too
const EDGE = 7; // px right of the heads
const MOVES = {
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
};

class Mosaic extends Drawing {
  constructor(root) {
    super(root);
    this.heads = []; // of all parts
    this.parts = [];
    this.pointed = null;
    this.byKeys = false; // whether the keys point, which is told to a screen reader
    this.watchRoom();
  }

  // --- what Python sends

  receive(data, tell) {
    const before = this.data;
    this.data = data;
    if (before?.of !== data.of) {
      this.pointed = null;
      this.parts = data.parts.map((part, at) => this.built(part, at));
      this.part(".parts").replaceChildren(...this.parts.map(({ place }) => place));
    }
    this.heads = headsOf(data);
    this.dress();
    if (before?.cells === data.cells) {
      this.arrange();
    } else {
      this.cells = null; // what is on screen stays until the new ones are there
      this.unpack(data);
    }
    this.choosing.receive(data, tell);
  }

  async unpack(data) {
    const cells = await inflated(data.cells);
    if (data === this.data) {
      this.cells = cells;
      this.arrange();
    }
  }

  built({ title }, at) {
    const place = document.createElement("section");
    const scroll = element("scroll");
    const plot = element("plot");
    scroll.style.display = plot.style.display = "block";
    plot.tabIndex = 0;
    plot.setAttribute("role", "application");
    plot.setAttribute("aria-describedby", "told");
    const frames = ["frame pointed", "frame chosen"].map((name) => element(name));
    const canvas = document.createElement("canvas");
    plot.append(canvas, ...frames);
    scroll.append(plot);
    place.className = "part";
    place.append(element("heading", title), scroll);
    plot.addEventListener("keydown", (event) => this.pressed(event, at));
    plot.addEventListener("click", (event) => this.open(this.headAt(event, at)));
    plot.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch") {
        this.point(this.headAt(event, at));
      }
    });
    plot.addEventListener("pointerleave", () => this.point(null));
    plot.addEventListener("blur", () => this.point(null));
    return { place, scroll, plot, canvas, pointed: frames[0], chosen: frames[1] };
  }

  // --- what a visitor does

  headAt({ clientX, clientY }, at) {
    const { plot, layout } = this.parts[at];
    const box = plot.getBoundingClientRect();
    const [x, y] = [clientX - box.left, clientY - box.top];
    const within = ({ left, top }) => {
      return x >= left && x < left + layout.wide && y >= top && y < top + layout.high;
    };
    const slot = layout?.slots.find(within);
    return slot ? slot.head : null;
  }

  pressed(event, at) {
    const meant = event.key in MOVES || event.key === "Enter" || event.key === " ";
    if (!meant || !isPlain(event) || !this.parts[at].layout) {
      return;
    }
    event.preventDefault();
    event.stopPropagation(); // at the edge too: arrow keys may turn something of the page
    const here = this.standsAt(at);
    if (event.key in MOVES) {
      this.point(beside(this.parts[at].layout.slots, here, MOVES[event.key]) ?? here, true);
      this.reveal(at);
    } else {
      this.open(here);
    }
  }

  /** From where the keys move: the head under the frame, else the chosen one, else the first. */
  standsAt(at) {
    const here = [this.pointed, this.chosenHead()].find((head) => head?.at === at);
    return here ?? this.parts[at].layout.slots[0].head;
  }

  reveal(at) {
    const { scroll, layout } = this.parts[at];
    const slot = layout.slots.find(holding(this.pointed));
    const [from, to] = [slot.left - layout.left, slot.left + layout.wide + EDGE];
    scroll.scrollLeft = Math.max(Math.min(scroll.scrollLeft, from), to - scroll.clientWidth);
  }

  point(head, byKeys = false) {
    this.pointed = head;
    this.byKeys = byKeys;
    this.show();
  }

  open(head) {
    if (head) {
      const { part, layer, head: number } = head;
      this.choosing.choose([part, layer, number], { part, layer, head: number });
    }
  }

  chosenHead() {
    const chosen = this.choosing.chosen;
    const same = ({ part, layer, head }) => chosen && String([part, layer, head]) === String(chosen);
    return this.heads.find(same) ?? null;
  }

  // --- what is on screen

  /** All that depends neither on the room there is nor on the chosen head. */
  dress() {
    const { data, root } = this;
    root.style.setProperty("--font-size", `${data.look.font_size}px`);
    root.style.setProperty("--title-size", `${data.look.title_size}px`);
    root.style.setProperty("--real", data.look.real);
    root.style.setProperty("--covered", data.look.covered);
    this.parts.forEach(({ place, plot }, at) => {
      place.querySelector(".heading").hidden = data.parts.length === 1;
      plot.setAttribute("aria-label", `${data.parts[at].title}: ${data.label}`);
    });
    this.part(".scale > .title").textContent = data.scale.title;
    this.part(".scale > .hidden > :last-child").textContent = data.scale.hidden;
    const ticks = data.scale.words.map((word, at) => {
      const tick = element("tick", word);
      tick.style.left = `${100 * data.scale.places[at]}%`;
      return tick;
    });
    this.part(".ticks").replaceChildren(...ticks);
    this.colours = coloursOf(data.palette, data.look.covered);
    paintRamp(this.part(".ramp > canvas"), data.palette);
  }

  arrange() {
    const width = this.root.clientWidth;
    if (!this.data || !this.cells || !width) {
      return;
    }
    this.part(".scale > .hidden").hidden = !this.cells.includes(HIDDEN);
    this.parts.forEach((part, at) => {
      const heads = this.heads.filter((head) => head.at === at);
      part.layout = layoutOf(this.data.parts[at], heads, width, this.data.look);
      part.plot.style.width = `${part.layout.width}px`;
      part.plot.style.height = `${part.layout.height}px`;
      this.draw(part, this.data.parts[at]);
    });
    this.show();
  }

  draw({ canvas, layout }, part) {
    const { data, cells, colours, root } = this;
    const style = getComputedStyle(root);
    const drawn = String([data.cells, data.palette, style.color, devicePixelRatio, layout.sign]);
    if (canvas.drawn === drawn) {
      return;
    }
    canvas.drawn = drawn;
    const dots = (px) => Math.round(px * devicePixelRatio);
    [canvas.width, canvas.height] = [dots(layout.width), dots(layout.height)];
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(canvas.width, canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    const size = [dots(layout.high), dots(layout.wide)];
    layout.slots.forEach(({ head, left, top }) => {
      const tile = fitted(cells, head, size);
      for (let row = 0; row < size[0]; row += 1) {
        const start = (dots(top) + row) * canvas.width + dots(left);
        for (let column = 0; column < size[1]; column += 1) {
          pixels[start + column] = colours[tile[row * size[1] + column]];
        }
      }
    });
    pen.putImageData(image, 0, 0);
    pen.scale(devicePixelRatio, devicePixelRatio);
    pen.fillStyle = pen.strokeStyle = style.color;
    pen.textBaseline = "middle";
    const fontOf = (size) => `${size}px ${style.fontFamily}`;
    if (part.order) {
      pen.font = fontOf(data.look.small_font);
      writeNames(pen, layout);
    } else {
      pen.font = fontOf(data.look.font_size);
      writeAxes(pen, layout, part, data.look);
    }
  }

  /** All that depends on the chosen head and on the pointer. */
  show() {
    const chosen = this.chosenHead();
    this.parts.forEach((part, at) => {
      placeFrame(part.pointed, part.layout, this.pointed?.at === at ? this.pointed : null);
      placeFrame(part.chosen, part.layout, chosen?.at === at ? chosen : null);
    });
    const read = this.pointed ?? chosen;
    const said = read ? this.read(read) : "";
    this.part(".reading").textContent = said || "\u00a0";
    if (!this.pointed || this.byKeys || this.pointed.index === chosen?.index) {
      const open = read && read.index === chosen?.index ? ", open" : "";
      this.part("#told").textContent = said + open;
    }
  }

  read({ part, layer, head, kvHead, index }) {
    const { names, which, values } = this.data.readings;
    const place = `layer ${layer}, head ${head}`;
    const value = values[index] === null ? [] : [`${names[which[index]]} ${values[index]}`];
    const family = kvHead === null ? [] : [`kv_head ${kvHead}`];
    const where = this.data.parts.length > 1 ? `${part}, ${place}` : place;
    return [where, ...family, ...value].join(" · ");
  }
}

/** All heads of all parts, each with where its cells begin. */
function headsOf({ parts }) {
  const heads = [];
  let cell = 0;
  parts.forEach(({ part, layers }, at) => {
    layers.forEach(([layer, count, kvHeads, down, across], row) => {
      for (let head = 0; head < count; head += 1) {
        const kvHead = kvHeads < count ? Math.floor((head * kvHeads) / count) : null;
        const index = heads.length;
        heads.push({ part, at, layer, row, head, kvHead, index, cell, down, across });
        cell += down * across;
      }
    });
  });
  return heads;
}

async function inflated(text) {
  const packed = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Each shade as the pixel of an image: bytes of red, green, blue, opacity. */
function coloursOf(palette, covered) {
  const bytes = new Uint8Array(4 * 256);
  bytes.set(palette.match(/../g).map((digits) => parseInt(digits, 16)));
  const [red, green, blue, opacity] = covered.match(/[\d.]+/g).map(Number);
  bytes.set([red, green, blue, Math.round(255 * opacity)], 4 * HIDDEN);
  return new Uint32Array(bytes.buffer);
}

/** A head's shades over so many pixels; where it has more cells, each pixel has the largest. */
function fitted(cells, { cell, down, across }, [high, wide]) {
  const [rows, columns] = [Math.min(down, high), Math.min(across, wide)];
  const dots = new Uint8Array(rows * columns).fill(HIDDEN);
  for (let at = 0; at < down * across; at += 1) {
    const row = Math.floor((Math.floor(at / across) * rows) / down);
    const dot = row * columns + Math.floor(((at % across) * columns) / across);
    const shade = cells[cell + at];
    dots[dot] = dots[dot] === HIDDEN || (shade !== HIDDEN && shade > dots[dot]) ? shade : dots[dot];
  }
  const column = Array.from({ length: wide }, (_, px) => Math.floor((px * columns) / wide));
  const tile = new Uint8Array(high * wide);
  for (let px = 0; px < high; px += 1) {
    const row = Math.floor((px * rows) / high) * columns;
    for (let at = 0; at < wide; at += 1) {
      tile[px * wide + at] = dots[row + column[at]];
    }
  }
  return tile;
}

// --- where heads stand: nothing in it depends on the chosen one, so that nothing jumps

function layoutOf(part, heads, width, look) {
  const grouped = heads.some(({ kvHead }) => kvHead !== null);
  const left = part.order ? 4 : grouped ? FAMILY_LABELS : LABELS;
  const gutters = part.gaps.reduce((sum, gap) => sum + gap);
  const labels = grouped ? FAMILY_LABELS : LABELS;
  const across = (width - labels - EDGE - gutters) / part.gaps.length;
  const down = Math.max(LOWEST, TALL / part.layers.length - look.gap) / part.aspect;
  const wide = whole(Math.max(NARROWEST, Math.min(across, down, WIDEST)), heads);
  return part.order
    ? inOrder(part, heads, { left, width, wide: Math.max(wide, NAMED) }, look)
    : inLayers(part, heads, { left, grouped, wide }, look);
}

/** A width of whole pixels, and of whole cells where that costs little. */
function whole(wide, heads) {
  const dots = Math.floor(wide * devicePixelRatio);
  const across = Math.max(...heads.map((head) => head.across));
  const times = Math.floor(dots / across) * across;
  return (times >= 0.8 * dots ? times : dots) / devicePixelRatio;
}

function heightOf(wide, { aspect }) {
  return Math.max(4, Math.round(wide * aspect * devicePixelRatio) / devicePixelRatio);
}

function inLayers(part, heads, { left, grouped, wide }, { gap }) {
  const high = heightOf(wide, part);
  const above = LINE * (grouped ? 2 : 1) + 4;
  const rows = part.layers.map((_, row) => above + row * (high + gap));
  let gutters = 0;
  const columns = part.gaps.map((gutter, head) => left + head * wide + (gutters += gutter));
  const slots = heads.map((head) => {
    const place = { row: head.row, column: head.head };
    return { head, left: columns[head.head], top: rows[head.row], ...place };
  });
  const [width, height] = [columns.at(-1) + wide + EDGE, rows.at(-1) + high + 2];
  const sign = String([wide, high, width, height]);
  return { slots, wide, high, left, rows, columns, width, height, grouped, sign };
}

function inOrder(part, heads, { left, width, wide }, { gap }) {
  const high = heightOf(wide, part);
  const count = Math.max(1, Math.floor((width - left - EDGE + gap) / (wide + gap)));
  const pitch = high + LINE;
  const slots = part.order.map((at, place) => {
    const [row, column] = [Math.floor(place / count), place % count];
    const corner = { left: left + column * (wide + gap), top: 4 + row * pitch };
    return { head: heads[at], row, column, ...corner };
  });
  const height = 4 + Math.ceil(slots.length / count) * pitch;
  const sign = String([part.order, wide, high, count]);
  return { slots, wide, high, left, width: width - EDGE, height, sign };
}

/** Whether a slot is that of a head; heads are made anew with each message from Python. */
function holding({ index }) {
  return ({ head }) => head.index === index;
}

/** The nearest head in a direction: in the next row that has any, the one above or below. */
function beside(slots, head, [down, across]) {
  const here = slots.find(holding(head));
  if (across) {
    const place = slots.indexOf(here) + across;
    return slots[place]?.head;
  }
  const there = slots.filter(({ row }) => Math.sign(row - here.row) === down);
  const far = ({ row, column }) => 1e6 * Math.abs(row - here.row) + Math.abs(column - here.column);
  return there.sort((one, other) => far(one) - far(other))[0]?.head;
}

function placeFrame(frame, layout, head) {
  const slot = head && layout?.slots.find(holding(head));
  frame.hidden = !slot;
  if (slot) {
    frame.style.left = `${slot.left}px`;
    frame.style.top = `${slot.top}px`;
    frame.style.width = `${layout.wide}px`;
    frame.style.height = `${layout.high}px`;
  }
}

// --- words in the picture

function writeNames(pen, { slots, wide, high }) {
  pen.textAlign = "center";
  slots.forEach(({ head, left, top }) => {
    pen.fillText(`${head.layer}.${head.head}`, left + wide / 2, top + high + LINE / 2);
  });
}

function writeAxes(pen, layout, part, look) {
  const { left, rows, columns, wide, high, grouped } = layout;
  const heads = rows[0] - 4 - LINE / 2;
  pen.textAlign = "right";
  pen.fillText("head", left - 8, heads);
  const every = Math.ceil(LINE / (high + look.gap));
  part.layers.forEach(([layer], row) => {
    if (row % every === 0) {
      pen.fillText(layer, left - 8, rows[row] + high / 2);
    }
  });
  pen.textAlign = "center";
  const step = Math.ceil((LINE + 2) / (wide + look.gap));
  columns.forEach((start, head) => head % step === 0 && pen.fillText(head, start + wide / 2, heads));
  writeSideways(pen, "layer", 8, (rows[0] + rows.at(-1) + high) / 2);
  part.layers.forEach(([, count], row) => count || hatch(pen, layout, rows[row]));
  if (grouped) {
    bracket(pen, layout, part);
  }
}

function writeSideways(pen, word, x, y) {
  pen.save();
  pen.translate(x, y);
  pen.rotate(-Math.PI / 2);
  pen.fillText(word, 0, 0);
  pen.restore();
}

/** A layer that shows nothing, across all heads. */
function hatch(pen, { left, columns, wide, high }, top) {
  const length = columns.at(-1) + wide - left;
  pen.save();
  pen.beginPath();
  pen.rect(left, top, length, high);
  pen.clip();
  pen.globalAlpha = 0.35;
  pen.beginPath();
  for (let x = left - high; x < left + length; x += 6) {
    pen.moveTo(x, top + high);
    pen.lineTo(x + high, top);
  }
  pen.stroke();
  pen.globalAlpha = 1;
  const word = "not read";
  const room = pen.measureText(word).width + 12;
  pen.clearRect(left + length / 2 - room / 2, top, room, high);
  pen.fillText(word, left + length / 2, top + high / 2);
  pen.restore();
}

/** Over the heads that read the same key and value head: a line with its number. */
function bracket(pen, { left, columns, wide, rows, slots }, { gaps }) {
  const first = slots[0].head.row;
  const ends = new Map();
  slots.forEach(({ head }) => {
    if (head.row === first && head.kvHead !== null) {
      const [from] = ends.get(head.kvHead) ?? [columns[head.head]];
      ends.set(head.kvHead, [from, columns[head.head] + wide]);
    }
  });
  const y = rows[0] - 4 - 2 * LINE;
  pen.textAlign = "right";
  pen.fillText("kv_head", left - 8, y + LINE / 2 - 1);
  pen.textAlign = "center";
  const widest = pen.measureText(String(gaps.length)).width + 4;
  ends.forEach(([from, to], kvHead) => {
    pen.fillRect(from + 1, y + LINE - 2, to - from - 2, 1.5);
    if (to - from >= widest) {
      pen.fillText(kvHead, (from + to) / 2, y + LINE / 2 - 1);
    }
  });
}

export default mounted(Mosaic);
