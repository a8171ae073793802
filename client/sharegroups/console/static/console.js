// Keeps a page that is open as it is now: the server sends its live part again when it has changed. Pages work without.
"use strict";

const region = document.getElementById("live");
const trouble = document.getElementById("trouble");
let paused = false;
let waiting = null;

function isInUse() {
  const focused = document.activeElement;
  const edits = focused !== null && region.contains(focused) && focused.matches("input, textarea, select");
  const selection = document.getSelection();
  const selects = selection !== null && !selection.isCollapsed && region.contains(selection.anchorNode);
  return edits || selects || region.querySelector("input:checked") !== null;
}

// What a keyboard user is at stays what they are at: the same link, button or region of the new part.
function placeOf(element) {
  if (element === null || !region.contains(element)) return null;
  const selector = element.tagName.toLowerCase();
  const name = element.getAttribute("href") ?? element.getAttribute("aria-label") ?? element.textContent;
  return { selector, name };
}

function returnTo(place) {
  if (place === null) return;
  for (const element of region.querySelectorAll(place.selector)) {
    const name = element.getAttribute("href") ?? element.getAttribute("aria-label") ?? element.textContent;
    if (name === place.name) {
      element.focus({ preventScroll: true });
      return;
    }
  }
}

function show(html) {
  if (paused || isInUse()) {
    waiting = html;
    return;
  }
  waiting = null;
  const scrolled = Array.from(region.querySelectorAll(".wide"), (each) => each.scrollLeft);
  const place = placeOf(document.activeElement);
  region.innerHTML = html; // made and escaped by the console itself; its policy allows no script in it
  region.querySelectorAll(".wide").forEach((each, index) => { each.scrollLeft = scrolled[index] ?? 0; });
  returnTo(place);
}

function say(text) {
  if (trouble.textContent !== text) trouble.textContent = text;
  trouble.hidden = text === "";
}

function pauseButton() {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  const label = () => { button.textContent = paused ? "Go on updating" : "Pause updating"; };
  button.addEventListener("click", () => {
    paused = !paused;
    label();
    if (!paused && waiting !== null) show(waiting);
  });
  label();
  region.before(button);
}

function watch() {
  const source = new EventSource("/live?page=" + encodeURIComponent(region.dataset.page));
  let lost = 0;
  source.addEventListener("figures", (event) => {
    lost = 0;
    say("");
    show(JSON.parse(event.data));
  });
  source.addEventListener("trouble", (event) => { lost = 0; say(JSON.parse(event.data)); });
  source.addEventListener("ended", () => {
    source.close();
    say("Your session has ended; reload the page to sign in.");
  });
  source.addEventListener("error", () => {
    lost += 1;
    if (lost > 1) say("The console does not answer, or has too many viewers; the figures are from the time below.");
    if (source.readyState === EventSource.CLOSED) setTimeout(watch, 30000);
  });
  addEventListener("pagehide", () => source.close());
}

pauseButton();
watch();
