/** What is drawn in a component, with what is chosen in it. */
class Drawing {
  constructor(root) {
    this.root = root;
    this.data = null;
    this.choosing = new Choosing(() => this.chosenChanged());
  }

  part(selector) {
    return this.root.querySelector(selector);
  }

  /** Arrange all anew where there is more or less room than before. */
  watchRoom() {
    this.observer = new ResizeObserver(() => this.arrange());
    this.observer.observe(this.part(".reading")); // which keeps its height, whatever is arranged
    document.fonts.ready.then(() => this.arrange());
  }

  leave() {
    this.choosing.leave();
    this.observer?.disconnect();
    this.data = null;
  }

  chosenChanged() {
    this.show();
  }

  /** A token newly chosen is in view inside of the component; the page itself does not move. */
  bringIntoView(token, scroll) {
    if (!token || token === this.seen) {
      return;
    }
    this.seen = token;
    const above = token.offsetTop < scroll.scrollTop;
    const below = token.offsetTop + token.offsetHeight > scroll.scrollTop + scroll.clientHeight;
    if (above || below) {
      scroll.scrollTop = token.offsetTop - scroll.clientHeight / 2;
    }
  }
}

/** The function that Streamlit calls for each message from Python and each change of the theme.
 *
 * One object of `Kind` lives as long as its element is on the page.
 */
function mounted(Kind) {
  const drawings = new WeakMap();
  return ({ parentElement, data, setStateValue }) => {
    const root = parentElement.querySelector(".drawing");
    if (drawings.get(parentElement)?.root !== root) {
      drawings.get(parentElement)?.leave();
      drawings.set(parentElement, new Kind(root));
    }
    const drawing = drawings.get(parentElement);
    drawing.receive(data, setStateValue);
    return () => {
      drawing.leave();
      drawings.delete(parentElement);
    };
  };
}

/** A key that moves within a component, and is no shortcut of the browser. */
function isPlain({ altKey, ctrlKey, metaKey, shiftKey }) {
  return !(altKey || ctrlKey || metaKey || shiftKey);
}

/** The token of a component that has the focus. */
function focusedToken(root) {
  const token = root.getRootNode().activeElement?.closest(".token");
  return root.contains(token) ? token : null;
}

/** An element with words in it; words are never HTML. */
function element(className, words = "") {
  const made = document.createElement("span");
  made.className = className;
  made.textContent = words;
  return made;
}

/** Two decimals of a weight, three of a small one, three digits of what is no weight. */
function written(value) {
  const size = Math.abs(value);
  return size >= 10 ? value.toPrecision(3) : value.toFixed(size < 0.0995 ? 3 : 2);
}

// --- colours

/** The shades of a palette from left to right. */
function paintRamp(canvas, palette) {
  const shades = Array.from({ length: palette.length / 8 }, (_, shade) => shade);
  paint(canvas, [1, shades.length], shades, palette);
}

/** One pixel a shade, over the ground where there is one; what is hidden stays transparent. */
function paint(canvas, [height, width], shades, palette, ground = null) {
  const colours = palette.match(/.{8}/g).map((digits) => over(parseInt(digits, 16), ground));
  const image = new ImageData(width, height);
  const pixels = new DataView(image.data.buffer);
  shades.forEach((shade, dot) => {
    pixels.setUint32(4 * dot, Number.isNaN(shade) ? 0 : colours[shade]);
  });
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** A colour with its opacity as one that is opaque on the ground. */
function over(colour, ground) {
  if (ground === null) {
    return colour;
  }
  const share = (colour & 255) / 255;
  return ground.reduce((mixed, behind, channel) => {
    const part = (colour >>> (24 - 8 * channel)) & 255;
    return mixed * 256 + Math.round(share * part + (1 - share) * behind);
  }, 0) * 256 + 255;
}

/** Red, green and blue of a colour as style sheets write it. */
function channels(colour) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = colour.trim();
  pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}
