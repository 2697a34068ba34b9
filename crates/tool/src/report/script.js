"use strict";
// Shows what is pointed at. The page is whole without it.
const tip = document.getElementById("tip");
for (const title of document.querySelectorAll("svg [data-tip] > title")) title.remove();
function nearest(svg, x, y) {
  let best = null;
  let least = 24 * 24;
  for (const point of svg.querySelectorAll("[data-tip]")) {
    const box = point.getBoundingClientRect();
    const dx = box.x + box.width / 2 - x;
    const dy = box.y + box.height / 2 - y;
    const distance = dx * dx + dy * dy;
    if (distance < least) [best, least] = [point, distance];
  }
  return best;
}
let marked = null;
document.addEventListener("pointermove", (event) => {
  const svg = event.target.closest("svg");
  const found = svg ? nearest(svg, event.clientX, event.clientY) : event.target.closest("[data-tip]");
  if (marked && marked !== found) marked.classList.remove("marked");
  marked = found;
  tip.hidden = !found;
  if (!found) return;
  found.classList.add("marked");
  tip.textContent = found.dataset.tip;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${event.clientY > 60 ? event.clientY - tip.offsetHeight - 12 : event.clientY + 18}px`;
});
