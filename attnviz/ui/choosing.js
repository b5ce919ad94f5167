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
