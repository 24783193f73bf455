// Draws every chart of the report; all data is in the file, and the page's policy forbids every load.
const charts = [...document.querySelectorAll(".chart")];
for (const chart of charts) {
  const { data, layout } = JSON.parse(chart.nextElementSibling.textContent);
  delete layout.width;
  // A chart of one bar is lower than the 64 px that plotly keeps free of tick labels and title.
  const fitting = { minreducedheight: 24, ...layout, autosize: true };
  Plotly.newPlot(chart, data, fitting, { displayModeBar: false, responsive: true });
  chart.on("plotly_afterplot", () => makeRoom(chart));
  makeRoom(chart);
}
// Numbers stand at the ends of bars, which on a phone is beyond the chart's edge: the bars give way.
function makeRoom(chart) {
  const edge = chart.getBoundingClientRect();
  const texts = [...chart.querySelectorAll(".bartext, .textpoint text")];
  const over = Math.max(0, ...texts.map((text) => text.getBoundingClientRect().right - edge.right));
  const margin = chart.layout.margin?.r ?? 0;
  if (over > 1 && margin < edge.width / 3) Plotly.relayout(chart, { "margin.r": margin + over + 4 });
}
// A chart in a language that was not shown had no width to fill.
for (const choice of document.querySelectorAll(".languages > label")) {
  choice.addEventListener("change", () => {
    choice.nextElementSibling.querySelectorAll(".chart").forEach((chart) => Plotly.relayout(chart, { autosize: true }));
  });
}
// Paper is narrower than the window, and printing sends no resize. A4 less its margins is 702 px.
const tables = [...document.querySelectorAll("details.printed:not([open])")];
addEventListener("beforeprint", () => {
  charts.forEach((chart) => Plotly.relayout(chart, { width: 660 }));
  tables.forEach((table) => (table.open = true));
});
addEventListener("afterprint", () => {
  charts.forEach((chart) => Plotly.relayout(chart, { autosize: true, width: null }));
  tables.forEach((table) => (table.open = false));
});
