// What this browser remembers of its person's choices, where it may remember anything.
export const keptRaw = (name) => {
  try { return localStorage.getItem(name); } catch { return null; }
};
export const kept = (name) => keptRaw(`saltgate.${name}`);
export const keep = (name, value) => {
  try { localStorage.setItem(`saltgate.${name}`, value); } catch { /* then it is asked again */ }
};
