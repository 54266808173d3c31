const place = document.getElementById("runs");
const runs = JSON.parse(document.getElementById("data").textContent).map(data => new Run(data));
place.append(...runs.map(run => run.box));
const drawAll = () => runs.forEach(run => run.draw());
addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
if (runs[0]) runs[0].box.focus({ preventScroll: true });
