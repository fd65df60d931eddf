const sections = [...document.querySelectorAll("section")];
const links = sections.map((section, i) => {
  const link = document.createElement("a");
  link.href = `#${section.id}`;
  link.textContent = i + 1;
  link.setAttribute("aria-label", `${i + 1}: ${section.querySelector("h2").textContent}`);
  document.getElementById("steps").appendChild(document.createElement("li")).append(link);
  return link;
});
const [back, next, all, place] = ["back", "next", "all", "place"].map((id) => document.getElementById(id));
let current = 0;

function show(index) {
  current = Math.max(0, Math.min(index, sections.length - 1));
  sections.forEach((section, i) => section.classList.toggle("current", i === current));
  links.forEach((link, i) => (i === current ? link.setAttribute("aria-current", "step") : link.removeAttribute("aria-current")));
  // A disabled button would lose the keyboard's focus.
  back.setAttribute("aria-disabled", String(current === 0));
  next.setAttribute("aria-disabled", String(current === sections.length - 1));
  place.textContent = `${current + 1} of ${sections.length}: ${sections[current].querySelector("h2").textContent}`;
}

function go(index) {
  show(index);
  history.replaceState(null, "", `#${sections[current].id}`);
  scrollTo(0, 0);
}

function stepwise(on) {
  document.body.classList.toggle("stepwise", on);
  all.setAttribute("aria-pressed", String(!on));
}

function follow() {
  const named = sections.findIndex((section) => `#${section.id}` === location.hash);
  show(named < 0 ? 0 : named);
}

back.addEventListener("click", () => go(current - 1));
next.addEventListener("click", () => go(current + 1));
all.addEventListener("click", () => stepwise(!document.body.classList.contains("stepwise")));
addEventListener("hashchange", follow);
addEventListener("keydown", (event) => {
  const index = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: sections.length - 1 }[event.key];
  if (index === undefined || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.target.closest("input, select, .scroll")) return;
  if (!document.body.classList.contains("stepwise")) return;
  event.preventDefault();
  go(index);
});
follow();
stepwise(true);
