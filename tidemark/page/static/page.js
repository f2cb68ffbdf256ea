// Says when the page is out of date: the process behind it does not answer, or refuses. Nothing else is done by script but htmx.
(function () {
  "use strict";
  var lastMs = Date.now();
  var SILENT_MS = 10000;

  function show() {
    var lost = document.getElementById("lost");
    var isRenewed = document.querySelector("[hx-get]") !== null;
    var isSilent = isRenewed && Date.now() - lastMs > SILENT_MS;
    if (isSilent && lost.hidden) {
      lost.querySelector("time").textContent = new Date(lastMs).toISOString().slice(11, 19) + " UTC";
    }
    lost.hidden = !isSilent;
  }

  document.addEventListener("htmx:afterRequest", function (event) {
    if (event.detail.successful) { lastMs = Date.now(); }
    show();
  });
  document.addEventListener("visibilitychange", show);
  window.setInterval(show, 1000);
}());
