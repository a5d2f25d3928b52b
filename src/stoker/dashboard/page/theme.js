"use strict";
/* Before anything is painted: the colours that were chosen last time, else those of the system. */
try {
  const chosen = localStorage.getItem("stoker-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* a browser that keeps nothing */ }
