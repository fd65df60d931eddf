"use strict";

// The system's choice until the reader makes another.
document.getElementById("theme").addEventListener("click", () => {
  const chosen = document.documentElement.style.colorScheme;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.style.colorScheme = dark ? "light" : "dark";
});
