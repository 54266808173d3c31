const WINDOW = 16; // rounds in the running mean of tokens per pass
const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name);
Run.prototype.mark = function () {
  if (this.now >= 0) for (const part of [this.line, this.bars]) {
    const mark = part.firstChild; mark.className = "";
    mark.style.left = `${100 * this.now / this.rounds.length}%`; mark.style.width = `${100 / this.rounds.length}%`;
  }
};
Run.prototype.draw = function () {
  let within = 0;
  const means = this.rounds.map((r, i) => { within += r.tokens.length - (i < WINDOW ? 0 : this.rounds[i - WINDOW].tokens.length); return within / Math.min(i + 1, WINDOW); });
  columns(this.line, means.map(m => [m]), ["bonus"], top => `highest mean of ${WINDOW} rounds: ${top.toFixed(2)}`);
  columns(this.bars, this.rounds.map(r => r.seconds), ["draft", "verify", "plain"], top => `tallest: ${milliseconds(top)}`);
  this.mark();
};
function columns(chart, rows, names, title) { // stacked; the tallest fills the height
  const canvas = chart.lastChild, scale = devicePixelRatio || 1, width = canvas.width = canvas.clientWidth * scale, height = canvas.height = canvas.clientHeight * scale;
  const pen = canvas.getContext("2d"), top = rows.reduce((most, c) => Math.max(most, sum(c)), 0) || 1, step = width / rows.length, colours = names.map(colour);
  rows.forEach((parts, i) => { let y = height; parts.forEach((part, j) => {
    const tall = part / top * (height - 16 * scale); pen.fillStyle = colours[j]; y -= tall; pen.fillRect(i * step, y, Math.max(step * (step > 3 ? .85 : 1), .5), tall); }); });
  pen.fillStyle = colour("faint"); pen.font = `${11 * scale}px system-ui`; pen.fillText(rows.length ? title(top) : "", 0, 11 * scale);
}
