// Before the first paint: the theme and the language that were chosen here last, so that nothing changes its look later.
(() => {
  const kept = (name) => {
    try { return localStorage.getItem(`saltgate.${name}`); } catch { return null; } // storage may be forbidden
  };
  const theme = kept("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  const wanted = [kept("language"), ...navigator.languages].map((tag) => String(tag).slice(0, 2).toLowerCase());
  document.documentElement.lang = wanted.find((tag) => tag === "en" || tag === "ja") ?? "en";
})();
