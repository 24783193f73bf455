// Draws every chart of the report; all data is in the file, and the page's policy forbids every load.
const charts = [...document.querySelectorAll(".chart")];
for (const chart of charts) {
  const { data, layout } = JSON.parse(chart.nextElementSibling.textContent);
  delete layout.width;
  Plotly.newPlot(chart, data, { ...layout, autosize: true }, { displayModeBar: false, responsive: true });
}
// Paper is narrower than the window, and printing sends no resize. A4 less its margins is 702 px.
addEventListener("beforeprint", () => charts.forEach((chart) => Plotly.relayout(chart, { width: 660 })));
addEventListener("afterprint", () => charts.forEach((chart) => Plotly.relayout(chart, { autosize: true, width: null })));
