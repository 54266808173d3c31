const SLICE = 60; // rounds drawn before the browser gets its turn again
const make = (tag, kind, text) => { const e = document.createElement(tag); if (kind) e.className = kind; if (text !== undefined) e.textContent = text; return e; };
// Controls are spelled out: one that turns the direction of writing would reach beyond its own token.
const spelled = text => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
  c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const visible = text => text === "" ? "∅" : spelled(text).replace(/\n/g, "⏎").replace(/\t/g, "⇥");
const milliseconds = s => (1000 * s).toFixed(1) + " ms";
const sum = list => list.reduce((a, b) => a + b, 0);
const percent = share => (100 * share).toFixed(share > 0 && share < .01 ? 2 : 0) + "%";

class Run {
  constructor(data) {
    this.data = data; this.rounds = []; this.now = -1; this.token = -1; this.sample = -1; this.drafters = [];
    this.tokens = this.accepted = this.drafted = 0; this.depths = []; this.several = data.rounds.some(r => r.sample > 0);
    this.box = make("section", "run"); this.box.tabIndex = 0;
    this.box.append(make("h2", "", spelled(data.name)), this.about = make("p", "faint"));
    this.figures = this.part("div", "figures");
    this.legend = this.part("div", "legend");
    this.text = this.part("div", "text"); this.text.dir = "auto";
    this.detail = this.part("div", "detail"); this.detail.setAttribute("aria-live", "polite");
    this.heading("Rounds: what was drafted → what the target added"); this.list = this.part("ol", "rounds");
    this.heading("Tokens per pass along the text"); this.line = this.chart();
    this.heading("Time per round"); this.keys(); this.bars = this.chart();
    this.heading("Acceptance by position"); this.table = this.part("div", "acceptance");
    this.listen(); this.summary(); this.waiting = data.rounds.slice(); this.fill();
  }
  part(tag, kind) { const e = make(tag, kind); this.box.append(e); return e; }
  heading(text) { this.part("h3").textContent = text; }
  chart() { const e = this.part("div", "chart"); e.append(make("i", "none"), make("canvas")); return e; }
  keys() { const p = this.part("p", "faint");
    for (const [name, hue] of [["draft", "draft"], ["verify", "verify"], ["rest", "plain"]]) {
      const key = make("span", "key", name + " "); key.style.setProperty("--of", `var(--${hue})`); p.append(key); } }
  listen() {
    const place = target => target.closest("[data-round]");
    for (const part of [this.text, this.list]) part.addEventListener("click", event => { const found = place(event.target);
      if (found) this.go(+found.dataset.round, part === this.text ? this.list : this.text, event.target.dataset.token); });
    for (const part of [this.line, this.bars]) part.addEventListener("click", event =>
      this.go(Math.floor((event.clientX - part.getBoundingClientRect().left) / part.clientWidth * this.rounds.length)));
    this.text.addEventListener("mouseover", event => { const found = place(event.target);
      if (found && event.target.dataset.token) this.tell(+found.dataset.round, +event.target.dataset.token); });
    this.text.addEventListener("mouseleave", () => { if (this.now >= 0) this.tell(this.now, this.token); });
    this.box.addEventListener("keydown", event => this.key(event));
  }
  push(rounds) { this.waiting.push(...rounds); if (!this.filling) this.fill(); }
  fill() { // in slices, so that a long run never holds the page up
    const text = document.createDocumentFragment(), list = document.createDocumentFragment();
    for (const r of this.waiting.splice(0, SLICE)) this.one(r, text, list);
    this.text.append(text); this.list.append(list);
    this.filling = this.waiting.length > 0;
    if (this.filling) setTimeout(() => this.fill()); else { this.summary(); requestAnimationFrame(() => this.draw()); }
  }
  one(r, text, list) {
    const number = this.rounds.push(r) - 1, stretch = make("span"), row = make("li");
    if (this.several && r.sample !== this.sample) text.append(make("b", "faint", `sample ${r.sample + 1}`));
    this.sample = r.sample; stretch.dataset.round = row.dataset.round = number;
    const hue = this.hue(r.drafter);
    r.tokens.forEach((id, i) => { const e = make("span", r.origins[i] + (r.origins[i] === "draft" ? hue : ""), spelled(r.texts[i])); e.dataset.token = i; stretch.append(e); });
    row.append(make("span", "faint", `${number + 1} ${r.drafter ? spelled(r.drafter) + " " : ""}`));
    const taken = new Set(r.accepted), chain = r.draft_parents.every((p, i) => p === i - 1);
    r.draft_tokens.forEach((id, i) => row.append(this.chip(r.draft_texts[i],
      taken.has(i) ? "draft" + hue : chain && i >= r.reached ? "unread" : "rejected", id, chain ? "" : `, under ${r.draft_parents[i] + 1}`)));
    row.append(" → ");
    r.tokens.forEach((id, i) => { if (r.origins[i] !== "draft") row.append(this.chip(r.texts[i], r.origins[i], id, "")); });
    if (r.note) row.append(make("span", "faint", " " + spelled(r.note)));
    text.append(stretch); list.append(row); this.count(r);
  }
  hue(drafter) {
    if (!this.drafters.includes(drafter)) this.drafters.push(drafter);
    return " d" + this.drafters.filter(name => name).indexOf(drafter) % 5;
  }
  chip(text, kind, id, more) { const e = make("bdi", "chip " + kind, visible(text)); e.title = `${id < 0 ? "" : `token ${id}, `}${kind.split(" ")[0]}${more}`; return e; }
  count(r) {
    this.tokens += r.tokens.length; this.accepted += r.accepted.length; this.drafted += r.draft_tokens.length;
    for (let i = 0; i < r.reached; i++) { const depth = this.depths[i] ??= [0, 0]; depth[1]++; if (i < r.accepted.length) depth[0]++; }
  }
  summary() {
    const d = this.data, seconds = [0, 1, 2].map(i => sum(this.rounds.map(r => r.seconds[i]))), all = sum(seconds);
    this.about.textContent = spelled(`${d.target} · ${d.method}${d.rule ? " · " + d.rule : ""} · ${d.num_prompt_tokens} prompt tokens`);
    const figure = (value, name) => { const e = make("span", "faint"); e.append(make("b", "", value), name); e.firstChild.style.color = "var(--ink)"; return e; };
    this.figures.replaceChildren(figure(this.rounds.length ? (this.tokens / this.rounds.length).toFixed(2) : "–", "tokens per pass"),
      figure(this.drafted ? percent(this.accepted / this.drafted) : "–", "of drafts accepted"),
      figure(String(this.tokens), `tokens in ${this.rounds.length} rounds`),
      ...(all ? [figure((this.tokens / all).toFixed(1), "tokens per second"), figure(percent(seconds[0] / all), "of the time spent drafting")] : []));
    const named = this.drafters.filter(name => name);
    const origins = [...(named.length ? named.map((name, i) => [`draft d${i % 5}`, `draft by ${spelled(name)}`]) : [["draft", "accepted draft"]]),
      ["replacement", "replacement after a rejection"], ["bonus", "bonus"], ["plain", "plain"]];
    this.legend.replaceChildren(...origins.map(([kind, name]) => make("span", kind, name)));
    this.table.replaceChildren(...this.depths.map(([yes, seen], i) => this.meter(`${i + 1}`, yes / seen, `${yes} of ${seen}`)));
    if (!this.depths.length) this.table.append(make("p", "faint", "no draft was verified"));
  }
  meter(name, share, title) {
    const e = make("div", "meter"), bar = make("span", "bar"), part = make("i"); part.style.width = `${100 * Math.min(1, share)}%`;
    bar.append(part); e.append(make("bdi", "", name), bar, make("span", "", percent(share))); if (title) e.title = title; return e;
  }
  go(number, scroll, token) {
    if (!this.rounds.length || !this.stretch(0)) return;
    number = Math.max(0, Math.min(this.rounds.length - 1, number));
    if (this.now >= 0) { this.stretch(this.now).classList.remove("now"); this.list.children[this.now].classList.remove("now"); }
    this.marked?.classList.remove("token"); this.marked = undefined;
    this.now = number; this.token = token === undefined ? -1 : +token;
    this.stretch(number).classList.add("now"); this.list.children[number].classList.add("now");
    if (this.token >= 0) { this.marked = this.stretch(number).children[this.token]; this.marked?.classList.add("token"); }
    if (scroll !== this.list) this.show(this.text, this.stretch(number));
    const settle = frames => { this.show(this.list, this.list.children[number]); if (frames && this.now === number) requestAnimationFrame(() => settle(frames - 1)); };
    if (scroll !== this.text) settle(6); // rows that come into sight get their true heights over the next frames
    this.tell(number, this.token); this.mark();
  }
  stretch(number) { return (this.several ? this.text.querySelector(`[data-round="${number}"]`) : this.text.children[number]); }
  tell(number, token) {
    const r = this.rounds[number], [draft, verify, rest] = r.seconds.map(milliseconds), lines = [];
    lines.push(make("p", "faint", `Round ${number + 1} of ${this.rounds.length}, from token ${r.start}: ${r.tokens.length} tokens, ` +
      `${r.accepted.length} of ${r.draft_tokens.length} drafts accepted; draft ${draft}, verify ${verify}, rest ${rest}`));
    if (token >= 0 && r.tokens[token] !== undefined) {
      const line = make("p"); line.append(make("bdi", "chip " + r.origins[token], visible(r.texts[token])),
        ` ${r.origins[token]}${r.tokens[token] < 0 ? "" : `, token ${r.tokens[token]}`}${r.drafter && r.origins[token] === "draft" ? `, drafted by ${spelled(r.drafter)}` : ""}`);
      lines.push(line);
      for (const [name, share] of r.best?.[token] ?? []) lines.push(this.meter(visible(name), share));
      if (!r.best?.[token]) lines.push(make("p", "faint", "Probabilities were not recorded in this source."));
    }
    this.detail.replaceChildren(...lines);
  }
  show(part, element) { // scrolls the box alone, never the page
    const outer = part.getBoundingClientRect(), inner = element.getBoundingClientRect();
    if (inner.top < outer.top || inner.bottom > outer.bottom) part.scrollTop += inner.top - outer.top - part.clientHeight / 3;
  }
  key(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault(); const step = steps[event.key];
    if (event.shiftKey && Math.abs(step) === 1) return this.walk(step);
    this.go(this.now < 0 && step < 0 ? 0 : this.now + step);
  }
  walk(step) { // token by token; over the ends of rounds
    let number = Math.max(this.now, 0), token = (this.now < 0 ? -1 : this.token) + step;
    if (token < 0 && number > 0) token = this.rounds[--number].tokens.length - 1;
    else if (this.rounds[number] && token >= this.rounds[number].tokens.length && number + 1 < this.rounds.length) { number++; token = 0; }
    if (this.rounds[number]?.tokens[token] !== undefined) this.go(number, undefined, token);
  }
}
