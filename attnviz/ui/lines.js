const SHADES = 32; // steps of opacity of the lines at rest: lines of one step are one path
const FAINTEST = 1 / 64; // of the strongest line; weaker ones could not be seen
const WRITTEN_FROM = 0.05; // weights from here on have their number, and
const WRITTEN_MOST = 5; // so many of the largest in any case
const DASHED_FROM = 0.1; // of the strongest line; dashes cost time and are not seen in weaker ones
const APART = 3; // px between the lines of several heads
const LONGEST_CANVAS = 8192; // px: browsers give up on longer ones
const EDGE = 4; // px between a word and the lines
const READ_OUT = 5; // weights of the token in focus
const OTHER = { query: "key", key: "query" };

class Lines extends Drawing {
  constructor(root) {
    super(root);
    this.columns = { query: this.part(".column.query"), key: this.part(".column.key") };
    this.pointed = null; // {axis, place} under the pointer, else that of the focus
    this.listen();
    this.watchRoom();
  }

  listen() {
    const scroll = this.part(".scroll");
    scroll.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch") {
        this.point(tokenOf(event) ?? this.tokenBeside(event));
      }
    });
    scroll.addEventListener("pointerleave", () => this.point(this.focused()));
    scroll.addEventListener("focusin", (event) => this.point(tokenOf(event)));
    scroll.addEventListener("focusout", () => this.point(null));
    scroll.addEventListener("click", (event) => this.choose(tokenOf(event)));
    scroll.addEventListener("keydown", (event) => this.pressed(event));
  }

  // --- what Python sends

  receive(data, tell) {
    const received = JSON.stringify(data);
    if (received !== this.received) {
      const others = data.of !== this.data?.of;
      Object.assign(this, { received, data });
      this.heads = data.heads.map((head) => ({ ...head, values: decoded(head.levels) }));
      this.dress();
      if (others) {
        this.fill();
      }
    }
    this.arrange();
    this.choosing.receive(data, tell);
    this.show();
  }

  chosenChanged() {
    super.chosenChanged();
    const place = this.choosing.chosen?.query;
    this.bringIntoView(this.columns.query.children[place], this.part(".scroll"));
  }

  // --- what a visitor does

  /** Beside a word, on the lines, the nearer column's token of the row is meant. */
  tokenBeside(event) {
    const box = this.part(".between").getBoundingClientRect();
    const axis = event.clientX < box.left + box.width / 2 ? "query" : "key";
    const place = Math.floor((event.clientY - box.top) / this.data.look.row);
    return place < this.data[axis].words.length ? { axis, place: Math.max(0, place) } : null;
  }

  focused() {
    const token = focusedToken(this.root);
    return token?.matches(":focus-visible") ? named(token) : null;
  }

  point(token) {
    if (token?.axis !== this.pointed?.axis || token?.place !== this.pointed?.place) {
      this.pointed = token;
      this.show();
    }
  }

  pressed(event) {
    const token = tokenOf(event);
    if (!token || !isPlain(event)) {
      return;
    }
    const { axis, place } = token;
    const last = this.data[axis].words.length - 1;
    const moves = {
      ArrowUp: [axis, Math.max(0, place - 1)],
      ArrowDown: [axis, Math.min(last, place + 1)],
      Home: [axis, 0],
      End: [axis, last],
      ArrowLeft: ["query", place],
      ArrowRight: ["key", place],
    };
    if (event.key in moves) {
      this.focus(...moves[event.key]);
    } else if (event.key === "Enter" || event.key === " ") {
      this.choose(token);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation(); // arrow keys may turn the page's steps
  }

  focus(axis, place) {
    const tokens = this.columns[axis].children;
    const token = tokens[Math.min(place, tokens.length - 1)];
    token.focus({ preventScroll: true });
    token.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  choose(token) {
    if (!token) {
      return;
    }
    const { axis, place } = token;
    const chosen = this.choosing.chosen ?? { query: null, key: null };
    if (chosen[axis] !== place) {
      const position = this.data[axis].positions[place];
      this.choosing.choose({ ...chosen, [axis]: place }, { axis, position });
    }
  }

  // --- what depends neither on the room there is nor on a token

  dress() {
    const { data, root } = this;
    const { look } = data;
    root.style.setProperty("--row", `${look.row}px`);
    root.style.setProperty("--rows", look.rows);
    root.style.setProperty("--font-size", `${look.font_size}px`);
    root.style.setProperty("--small-font", `${look.small_font}px`);
    root.style.setProperty("--title-size", `${look.title_size}px`);
    root.style.setProperty("--real", look.real);
    for (const axis of ["query", "key"]) {
      this.part(`.titles .${axis}`).textContent = data[axis].title;
      this.columns[axis].setAttribute("aria-label", `${data[axis].title}. ${data.label}`);
    }
    const several = this.heads.length > 1;
    this.part(".legend").hidden = !several;
    this.part(".legend").replaceChildren(...(several ? this.heads.map(swatch) : []));
    this.part(".scale").textContent = `strongest line: ${data.top_written}`;
  }

  /** The tokens stay, and with them focus and scroll, where only the heads are others. */
  fill() {
    this.columns.query.replaceChildren(...this.tokensOf("query"));
    this.columns.key.replaceChildren(...this.tokensOf("key"));
    this.pointed = null;
  }

  tokensOf(axis) {
    const { words, positions, special } = this.data[axis];
    return words.map((word, place) => {
      const token = element(special[place] ? "token special" : "token");
      token.append(element("position", positions[place]), element("word", word));
      token.setAttribute("role", "option");
      token.setAttribute("aria-label", `${positions[place]} ${word}`);
      token.tabIndex = -1;
      token.dataset.axis = axis;
      token.dataset.place = place;
      return token;
    });
  }

  // --- what depends on the room

  arrange() {
    if (!this.data || !this.root.clientWidth) {
      return;
    }
    const { row } = this.data.look;
    const rows = Math.max(this.data.query.words.length, this.data.key.words.length);
    this.size = [this.part(".between").clientWidth, rows * row];
    this.drawAll();
    this.show();
  }

  /** A pen whose units are the pixels of the page. */
  pen(name) {
    const canvas = this.part(`canvas.${name}`);
    const sharp = Math.min(devicePixelRatio, LONGEST_CANVAS / this.size[1]);
    const [width, height] = this.size.map((side) => Math.max(1, Math.round(side * sharp)));
    if (canvas.width !== width || canvas.height !== height) {
      Object.assign(canvas, { width, height });
      canvas.style.height = `${this.size[1]}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.clearRect(0, 0, ...this.size);
    return pen;
  }

  drawAll() {
    const drawn = [this.received, this.size, devicePixelRatio].join();
    if (drawn === this.drawn) {
      return;
    }
    this.drawn = drawn;
    const pen = this.pen("all");
    const columns = this.data.key.words.length;
    this.heads.forEach((head, at) => {
      const paths = Array.from({ length: SHADES + 1 }, () => new Path2D());
      head.values.forEach((value, cell) => {
        const strength = Math.abs(value) / this.data.top;
        if (strength >= FAINTEST) {
          const path = paths[Math.ceil(Math.min(1, strength) * SHADES)];
          this.trace(path, at, Math.floor(cell / columns), cell % columns);
        }
      });
      paths.forEach((path, shade) => this.stroke(pen, head, path, shade / SHADES));
    });
  }

  trace(path, head, query, key) {
    const { row } = this.data.look;
    const offset = row / 2 + APART * (head - (this.heads.length - 1) / 2);
    path.moveTo(EDGE, query * row + offset);
    path.lineTo(this.size[0] - EDGE, key * row + offset);
  }

  stroke(pen, head, path, strength) {
    pen.globalAlpha = Math.min(1, strength); // a rounded weight may lie above the largest
    pen.strokeStyle = head.colour;
    pen.lineWidth = this.data.look.line * (this.heads.length > 1 ? 0.7 : 0.8);
    pen.setLineDash(strength < DASHED_FROM ? [] : head.dash);
    pen.stroke(path);
  }

  // --- what depends on the token pointed at, or else on the chosen one

  show() {
    if (!this.size) {
      return; // it lies where nothing is shown as yet
    }
    const chosen = this.choosing.chosen ?? { query: null, key: null };
    const resting = chosen.query === null ? null : { axis: "query", place: chosen.query };
    const token = this.pointed ?? resting;
    this.root.classList.toggle("pointing", this.pointed !== null);
    this.root.classList.toggle("choosing", this.pointed === null && resting !== null);
    this.mark(chosen, this.pointed);
    this.drawOwn(token);
    this.part(".reading").textContent = token ? this.said(token) : "";
    const heard = this.focused() ?? resting; // not each token that the pointer passes
    this.part("#told").textContent = heard ? this.spoken(heard) : "";
  }

  mark(chosen, pointed) {
    for (const axis of ["query", "key"]) {
      const tokens = this.columns[axis].children;
      const stop = this.stopOf(axis, chosen);
      const at = pointed?.axis === axis ? pointed.place : null;
      const now = { chosen: chosen[axis], pointed: at, stop };
      for (const place of Object.values(this.marked?.[axis] ?? {})) {
        tokens[place]?.classList.remove("chosen", "pointed");
        tokens[place]?.setAttribute("aria-selected", "false");
        tokens[place]?.setAttribute("tabindex", -1);
      }
      tokens[now.chosen]?.classList.add("chosen");
      tokens[now.chosen]?.setAttribute("aria-selected", "true");
      tokens[now.pointed]?.classList.add("pointed");
      tokens[now.stop]?.setAttribute("tabindex", 0);
      this.marked = { ...this.marked, [axis]: now };
    }
  }

  /** Where Tab comes to in a column: the token that has the focus, the chosen one, or the first. */
  stopOf(axis, chosen) {
    const focused = focusedToken(this.root);
    return focused?.dataset.axis === axis ? Number(focused.dataset.place) : (chosen[axis] ?? 0);
  }

  drawOwn(token) {
    const pen = this.pen("own");
    const numbers = new Map();
    this.heads.forEach((head, at) => {
      for (const { place, value } of token ? this.linesOf(head, token) : []) {
        const strength = Math.abs(value) / this.data.top;
        if (strength >= FAINTEST) {
          const path = new Path2D();
          const ends = token.axis === "query" ? [token.place, place] : [place, token.place];
          this.trace(path, at, ...ends);
          this.stroke(pen, head, path, strength);
        }
      }
      for (const { place, value } of token ? this.strongest(head, token) : []) {
        numbers.set(place, [...(numbers.get(place) ?? []), this.number(head, value)]);
      }
    });
    const labels = [...numbers].map(([place, parts]) => {
      const label = element("at");
      label.style.top = `${place * this.data.look.row}px`;
      label.dataset.place = place;
      label.append(...parts);
      return label;
    });
    this.part(".numbers").className = `numbers at-${token ? OTHER[token.axis] : "none"}`;
    this.part(".numbers").replaceChildren(...labels);
  }

  number(head, value) {
    const number = element("number", written(value));
    if (this.heads.length > 1) {
      number.style.backgroundImage = underline(head);
    }
    return number;
  }

  /** The row of a query or the column of a key, without what is hidden or nothing. */
  linesOf(head, { axis, place }) {
    const columns = this.data.key.words.length;
    const count = this.data[OTHER[axis]].words.length;
    const cell = (other) => (axis === "query" ? place * columns + other : other * columns + place);
    return Array.from({ length: count }, (_, other) => {
      return { place: other, value: head.values[cell(other)] };
    }).filter(({ value }) => Math.abs(value) > 0); // which NaN is not
  }

  strongest(head, token) {
    const lines = this.linesOf(head, token);
    const inOrder = lines.sort((one, other) => Math.abs(other.value) - Math.abs(one.value));
    const least = WRITTEN_FROM * Math.max(1, this.data.top);
    return inOrder.filter(({ value }, rank) => rank < WRITTEN_MOST || Math.abs(value) >= least);
  }

  said({ axis, place }) {
    return `${this.token(axis, place)} ${axis === "query" ? "looks at" : "is looked at by"}`;
  }

  spoken(token) {
    const rows = this.heads.map((head) => {
      const name = this.heads.length > 1 ? `${head.name}: ` : "";
      const parts = this.strongest(head, token)
        .slice(0, READ_OUT)
        .map(({ place, value }) => `${this.token(OTHER[token.axis], place)} ${written(value)}`);
      return name + (parts.join(", ") || "no token");
    });
    return `${this.said(token)} ${rows.join("; ")}`;
  }

  token(axis, place) {
    const { positions, words } = this.data[axis];
    return `${axis} ${positions[place]} ${words[place]}`;
  }
}

function named(token) {
  return { axis: token.dataset.axis, place: Number(token.dataset.place) };
}

function tokenOf(event) {
  const token = event.target.closest(".token");
  return token ? named(token) : null;
}

/** A head's line in the legend, and its name. */
function swatch(head) {
  const made = element("head");
  const line = element("line");
  line.style.backgroundImage = underline(head);
  made.append(line, element("name", head.name));
  return made;
}

/** The head's line as a background. */
function underline({ colour, dash }) {
  let at = 0;
  const parts = (dash.length ? dash : [1, 0]).map((length, place) => {
    const from = at;
    at += length;
    return `${place % 2 ? "transparent" : colour} ${from}px ${at}px`;
  });
  return `repeating-linear-gradient(90deg, ${parts.join(", ")})`;
}

export default mounted(Lines);
