// What a round is made of is said where the page is written, in trace_page.py.
const { labels, rounds } = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const slider = element("slider");
const play = element("play");
let current = rounds.length - 1;
let timer = null;

const number = (value) => (value === null ? "–" : (value / 1000).toFixed(3));

function addRow(body, values) {
  const row = body.insertRow();
  for (const value of values) row.insertCell().textContent = value;
}

function verdict(round, place) {
  if (place < round.kept) return "kept";
  return round.follow ? "refused" : "past the end";
}

const marksOf = rounds.map(() => []);
for (const mark of document.querySelectorAll("#text [data-r]")) marksOf[mark.dataset.r].push(mark);
const unfolded = new Set();

// Guesses made in vain stand before what came in their place, or at the end of the text. A page may have tens of thousands,
// so they are put in when they are first asked for.
function unfold(r) {
  if (unfolded.has(r)) return;
  unfolded.add(r);
  const round = rounds[r];
  const vain = round.guesses.slice(round.kept).map(([token], i) => {
    const mark = document.createElement("s");
    Object.assign(mark.dataset, { r, i: round.kept + i });
    mark.classList.toggle("past", !round.follow);
    mark.textContent = labels[token];
    return mark;
  });
  if (round.follow) marksOf[r].find((mark) => Number(mark.dataset.i) === round.kept).before(...vain);
  else element("text").append(...vain);
  marksOf[r].push(...vain);
  paint(r);
}

function paint(r) {
  for (const mark of marksOf[r]) {
    mark.classList.toggle("later", r > current);
    mark.classList.toggle("now", r === current);
  }
}

function last(round) {
  if (!round.guesses.length) return "plain";
  return round.kept === round.guesses.length ? "bonus" : "correction";
}

function outcome(round) {
  if (round.guesses.length) return `${round.kept} of ${round.guesses.length} kept`;
  return round.follow ? "no guess, a step of plain decoding" : "nothing came out";
}

function showRound() {
  const round = rounds[current];
  const total = round.draft + round.verify;
  element("round-heading").textContent = `Round ${current + 1}: ${outcome(round)}`;
  element("draft-half").style.width = `${(100 * round.draft) / total}%`;
  element("verify-half").style.width = `${(100 * round.verify) / total}%`;
  element("halves").textContent = `drafting ${round.draft.toFixed(2)} ms, verifying ${round.verify.toFixed(2)} ms`;

  const body = element("guesses").tBodies[0];
  body.replaceChildren();
  round.guesses.forEach(([token, p, q, accept, draw], place) => {
    addRow(body, [labels[token], ...[p, q, accept, draw].map(number), verdict(round, place)]);
  });
  if (round.follow) {
    const [token, p, chance] = round.follow;
    addRow(body, [labels[token], number(p), "–", number(chance), "–", last(round)]);
  }

  const likeliest = element("likeliest").tBodies[0];
  likeliest.replaceChildren();
  round.likeliest.forEach((choices, place) => {
    const row = likeliest.insertRow();
    row.insertCell().textContent = place + 1;
    for (const [token, p, q] of choices) {
      const numbers = document.createElement("small");
      numbers.textContent = `${number(p)} ${number(q)}`;
      row.insertCell().append(labels[token], numbers);
    }
  });
}

function go(index) {
  const from = current;
  current = Math.max(0, Math.min(index, rounds.length - 1));
  unfold(current);
  for (let r = Math.min(from, current); r <= Math.max(from, current); r++) paint(r);
  slider.value = current + 1;
  element("number").value = current + 1;
  // A disabled button would lose the keyboard's focus.
  for (const id of ["first", "back"]) element(id).setAttribute("aria-disabled", String(current === 0));
  for (const id of ["last", "next"]) element(id).setAttribute("aria-disabled", String(current === rounds.length - 1));
  showRound();
  const now = marksOf[current][0];
  const text = element("text");
  if (now && text.scrollHeight > text.clientHeight) text.scrollTop = now.offsetTop - text.offsetTop - text.clientHeight / 2;
}

function stop() {
  clearTimeout(timer);
  timer = null;
  play.textContent = "Play";
}

function tick() {
  if (current === rounds.length - 1) return stop();
  go(current + 1);
  timer = setTimeout(tick, Number(element("speed").value));
}

play.addEventListener("click", () => {
  if (timer !== null) return stop();
  play.textContent = "Pause";
  if (current === rounds.length - 1) go(0);
  timer = setTimeout(tick, Number(element("speed").value));
});
const jump = { first: () => 0, back: () => current - 1, next: () => current + 1, last: () => rounds.length - 1 };
for (const [id, where] of Object.entries(jump)) element(id).addEventListener("click", () => (stop(), go(where())));
slider.addEventListener("input", () => (stop(), go(Number(slider.value) - 1)));
element("refused").addEventListener("click", (event) => {
  rounds.forEach((_, r) => unfold(r));
  const all = document.body.classList.toggle("all-refused");
  event.currentTarget.setAttribute("aria-pressed", String(all));
});
addEventListener("keydown", (event) => {
  const where = { ArrowLeft: jump.back, ArrowRight: jump.next, Home: jump.first, End: jump.last }[event.key];
  if (!where || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.target.closest("input, select, .scroll")) return;
  event.preventDefault();
  stop();
  go(where());
});

// What a token was given and how it was judged, beside the pointer.
const hint = element("hint");

function story(mark) {
  const round = rounds[mark.dataset.r];
  const place = Number(mark.dataset.i);
  const follows = place === round.kept && mark.localName === "span";
  const lines = [`${labels[follows ? round.follow[0] : round.guesses[place][0]]}   round ${Number(mark.dataset.r) + 1}`];
  if (follows) {
    const [, p, chance] = round.follow;
    lines.push(`${last(round)}, p ${number(p)}`);
    if (chance !== null) lines.push(`drawn with probability ${number(chance)}`);
  } else {
    const [, p, q, accept, draw] = round.guesses[place];
    lines.push(`${verdict(round, place)}, p ${number(p)}, q ${number(q)}`);
    if (draw !== null) lines.push(`accepts below ${number(accept)}, draw ${number(draw)}`);
  }
  return lines.join("\n");
}

element("text").addEventListener("pointerover", (event) => {
  const mark = event.target.closest("[data-r]");
  hint.hidden = mark === null;
  if (mark === null) return;
  hint.textContent = story(mark);
  const box = mark.getBoundingClientRect();
  hint.style.left = `${Math.max(8, Math.min(box.left, innerWidth - hint.offsetWidth - 8))}px`;
  const below = box.bottom + 8 + hint.offsetHeight < innerHeight;
  hint.style.top = `${below ? box.bottom + 8 : box.top - hint.offsetHeight - 8}px`;
});
element("text").addEventListener("pointerleave", () => (hint.hidden = true));
element("text").addEventListener("click", (event) => {
  const mark = event.target.closest("[data-r]");
  if (mark) go(Number(mark.dataset.r));
});

go(current);
