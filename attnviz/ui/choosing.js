const PAUSE = 120; // ms between a choice and the next that is told, and after the last of several
const CHOICE_CAME = "attnviz-choice";

/** What a visitor has chosen in a component; Python holds it too and may choose otherwise.
 *
 * The newest choice made here is shown at once, numbered and told. What Python sends says which
 * number it has heard last: an answer to an older choice does not move the newest one back.
 */
class Choosing {
  constructor(changed) {
    this.changed = changed; // is called whenever something else is chosen, here or by Python
    this.chosen = null;
    this.sent = null; // all that came with Python's newest choice
    this.number = 0; // of the newest choice made here
    this.waiting = false; // for Python's answer to it
    this.timer = null;
    this.toldAt = -Infinity;
    this.hearing = ({ detail }) => detail === this.picker && this.hear();
    document.addEventListener(CHOICE_CAME, this.hearing);
  }

  leave() {
    clearTimeout(this.timer);
    document.removeEventListener(CHOICE_CAME, this.hearing);
  }

  /** What was chosen among other tokens says nothing here. */
  receive({ picker, of }, tell) {
    if (this.of !== of) {
      clearTimeout(this.timer);
      Object.assign(this, { picker, of, timer: null, waiting: false, chosen: null, sent: null });
    }
    this.tell = tell;
    this.hear();
  }

  hear() {
    const choice = globalThis.attnvizChoices?.get(this.picker);
    if (choice?.of !== this.of || (this.waiting && choice.answered !== this.number)) {
      return;
    }
    this.waiting = false;
    this.number = Math.max(this.number, choice.answered);
    this.chosen = choice.chosen;
    this.sent = choice;
    this.changed();
  }

  choose(chosen, said) {
    this.chosen = chosen;
    this.said = said;
    this.number += 1;
    this.waiting = true;
    this.tellSoon();
    this.changed();
  }

  /** A single choice is told at once; of a quick series the first, and the last after a pause. */
  tellSoon() {
    const quiet = this.timer === null && performance.now() - this.toldAt > PAUSE;
    clearTimeout(this.timer);
    this.timer = quiet ? null : setTimeout(() => this.tellNow(), PAUSE);
    if (quiet) {
      this.tellNow();
    }
  }

  tellNow() {
    this.timer = null;
    this.toldAt = performance.now();
    this.tell("choice", { of: this.of, ...this.said, number: this.number });
  }
}

/** The function that Streamlit calls for each message from Python and each change of the theme.
 *
 * One object of `Drawing` lives as long as its element is on the page.
 */
function mounted(Drawing) {
  const drawings = new WeakMap();
  return ({ parentElement, data, setStateValue }) => {
    const root = parentElement.querySelector(".drawing");
    if (drawings.get(parentElement)?.root !== root) {
      drawings.get(parentElement)?.leave();
      drawings.set(parentElement, new Drawing(root));
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
