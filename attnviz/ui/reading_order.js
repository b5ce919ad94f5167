const WRITTEN_MOST = 5; // numbers of the strongest tokens, at rest
const FROM_RIGHT = /\p{Script=Hebrew}|\p{Script=Arabic}|\p{Script=Syriac}|\p{Script=Thaana}/u;
const READABLE = 4.5; // contrast of WCAG 2.2
const INK = [0, 0, 0];
const PAPER = [255, 255, 255];

class ReadingOrder extends Drawing {
  constructor(root) {
    super(root);
    this.text = this.part(".text");
    this.tokens = [];
    this.listen();
  }

  listen() {
    this.text.addEventListener("click", (event) => {
      const token = event.target.closest(".token");
      if (token) {
        this.choose(this.tokens.indexOf(token));
      }
    });
    this.text.addEventListener("keydown", (event) => this.pressed(event));
    this.text.addEventListener("pointerover", (event) => this.point(event.target));
    this.text.addEventListener("pointerleave", () => this.point(null));
    this.text.addEventListener("focusin", (event) => this.point(event.target));
    this.text.addEventListener("focusout", () => this.point(null));
  }

  // --- what Python sends

  receive(data, tell) {
    const written = JSON.stringify(data);
    if (written !== this.received) {
      this.received = written;
      this.data = data;
      this.write();
    }
    this.choosing.receive(data, tell);
    this.show(); // also in another theme
  }

  write() {
    const { tokens, look, label } = this.data;
    const focused = this.focusedPlace();
    const position = focused === -1 ? null : Number(this.tokens[focused].dataset.position);
    this.root.style.setProperty("--real", look.real);
    this.root.style.setProperty("--font-size", `${look.font_size}px`);
    this.root.style.setProperty("--small-font", `${look.small_font}px`);
    this.text.setAttribute("aria-label", label);
    this.text.dir = isFromRight(tokens.words) ? "rtl" : "ltr";
    this.tokens = tokens.words.map((word, place) => {
      const token = element(tokens.special[place] ? "token special" : "token");
      token.append(element("word", word), element("number"));
      token.setAttribute("role", "option");
      token.dataset.position = tokens.positions[place];
      return token;
    });
    this.text.replaceChildren(...this.tokens.flatMap((token, place) => this.around(token, place)));
    this.tokens[tokens.positions.indexOf(position)]?.focus({ preventScroll: true });
  }

  /** A token between the gap before it and the line break after it, if there are any. */
  around(token, place) {
    const { breaks, gaps } = this.data.tokens;
    const before = gaps.includes(place) ? [element("gap", " … ")] : [];
    const after = breaks.includes(place) ? [document.createElement("br")] : [];
    return [...before, token, ...after];
  }

  // --- what a visitor does

  pressed(event) {
    const place = this.focusedPlace();
    if (place === -1 || !isPlain(event)) {
      return;
    }
    const forward = this.text.dir === "rtl" ? -1 : 1;
    const moves = {
      ArrowLeft: () => place - forward,
      ArrowRight: () => place + forward,
      ArrowUp: () => this.nextLine(place, -1),
      ArrowDown: () => this.nextLine(place, 1),
      Home: () => 0,
      End: () => this.tokens.length - 1,
      Enter: () => place,
      " ": () => place,
    };
    if (!(event.key in moves)) {
      return;
    }
    event.preventDefault();
    event.stopPropagation(); // arrow keys may turn the page's steps
    const next = Math.min(Math.max(moves[event.key](), 0), this.tokens.length - 1);
    this.tokens[next].focus({ preventScroll: true });
    this.tokens[next].scrollIntoView({ block: "nearest", inline: "nearest" });
    this.choose(next);
  }

  /** The token of the next line, up or down, that lies nearest. */
  nextLine(place, step) {
    const from = this.tokens[place];
    const middle = (token) => token.offsetLeft + token.offsetWidth / 2;
    let best = place;
    let line = null;
    for (let at = place + step; at >= 0 && at < this.tokens.length; at += step) {
      const token = this.tokens[at];
      if (token.offsetTop === from.offsetTop) {
        continue;
      }
      line ??= token.offsetTop;
      if (token.offsetTop !== line) {
        break;
      }
      const nearer = Math.abs(middle(token) - middle(from));
      if (best === place || nearer < Math.abs(middle(this.tokens[best]) - middle(from))) {
        best = at;
      }
    }
    return best;
  }

  focusedPlace() {
    return this.tokens.indexOf(focusedToken(this.root));
  }

  choose(place) {
    const position = this.data.tokens.positions[place];
    if (position !== this.choosing.chosen) {
      this.choosing.choose(position, { position });
    }
  }

  /** The number of the token pointed at stands below it, as those of the strongest always do. */
  point(target) {
    const token = target?.closest?.(".token") ?? null;
    const place = this.tokens.indexOf(token ?? focusedToken(this.root));
    this.part(".token.pointed")?.classList.remove("pointed");
    this.tokens[place]?.classList.add("pointed");
  }

  // --- what depends on the query

  show() {
    const { chosen, sent, waiting } = this.choosing;
    this.root.classList.toggle("waiting", waiting);
    if (sent !== null && sent.part === this.data.part) {
      this.shade(sent);
    }
    const { positions } = this.data.tokens;
    const place = positions.indexOf(chosen);
    const focused = this.focusedPlace();
    const stop = focused === -1 ? Math.max(place, 0) : focused;
    this.tokens.forEach((token, at) => {
      token.classList.toggle("chosen", at === place);
      token.setAttribute("aria-selected", at === place);
      token.tabIndex = at === stop ? 0 : -1;
    });
    this.part(".looks").hidden = place === -1;
    this.bringIntoView(this.tokens[place], this.text);
  }

  shade({ levels, top: high, top_written: top, quantity }) {
    const row = decoded(levels);
    const strengths = row.map((value) => Math.min(1, Math.abs(value) / high));
    const order = [...strengths.keys()].filter((place) => strengths[place] > 0.001);
    order.sort((one, other) => strengths[other] - strengths[one]);
    const strongest = new Set(order.slice(0, WRITTEN_MOST));
    const colours = coloursOf(this.root, this.data.look.real);
    this.tokens.forEach((token, place) => {
      const hidden = Number.isNaN(row[place]);
      const { words, positions } = this.data.tokens;
      const told = hidden ? "hidden by the mask" : `${quantity} ${written(row[place])}`;
      token.setAttribute("aria-label", `${positions[place]} ${words[place]}, ${told}`);
      token.classList.toggle("masked", hidden);
      token.classList.toggle("strong", strongest.has(place));
      token.lastChild.textContent = hidden ? "–" : written(row[place]);
      tint(token.firstChild, hidden ? 0 : strengths[place], colours);
    });
    this.part(".top").textContent = top;
    this.part(".low").textContent = `${quantity} 0`;
    this.part(".masked").hidden = !row.some(Number.isNaN);
  }
}

/** A word's shade, and the colour in which it can be read on it. */
function tint(word, strength, { words, behind, real }) {
  const shade = behind.map((part, at) => Math.round(part + strength * (real[at] - part)));
  const readable = [words, INK, PAPER].filter((ink) => contrast(ink, shade) >= READABLE);
  word.style.backgroundColor = strength ? `rgb(${shade})` : "";
  word.style.color = strength ? `rgb(${readable[0]})` : "";
}

function contrast(...colours) {
  const [dark, light] = colours.map(luminance).sort((one, other) => one - other);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(colour) {
  const [red, green, blue] = colour.map((part) => {
    const value = part / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function coloursOf(root, real) {
  const named = (name) => getComputedStyle(root).getPropertyValue(name);
  return {
    words: channels(named("--st-text-color")),
    behind: channels(named("--st-background-color")),
    real: channels(real),
  };
}

/** Most letters of the text are written from the right. */
function isFromRight(words) {
  const letters = words.join("").match(/\p{L}/gu) ?? [];
  return 2 * letters.filter((letter) => FROM_RIGHT.test(letter)).length > letters.length;
}

export default mounted(ReadingOrder);
