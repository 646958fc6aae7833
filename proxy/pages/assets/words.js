// What the pages say, in the page's language. Every visible word is in words.en.js and words.ja.js, nowhere else.
export const LANGUAGES = ["en", "ja"];
export const language = document.documentElement.lang;

const catalogue = (await import(`./words.${language}.js`)).default;
const plural = new Intl.PluralRules(language);

export const isKnown = (key) => Object.hasOwn(catalogue, key);

// The words under `key`, its {names} filled in.
export const say = (key, values = {}) =>
  catalogue[key].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));

// The same in the form for `number`, which is the name {count} unless it is given.
export const sayCount = (key, number, values = {}) =>
  say(`${key}.${plural.select(number) === "one" ? "one" : "other"}`, { count: number, ...values });

// The words under `prefix.name`, or the name itself: a gate newer than a page kept open may have new names.
export const sayNamed = (prefix, name) => {
  const key = `${prefix}.${name}`;
  return isKnown(key) ? say(key) : String(name);
};

// Fills in what the shell left open.
export const fillShell = (root = document) => {
  for (const node of root.querySelectorAll("[data-word]")) node.textContent = say(node.dataset.word);
  for (const node of root.querySelectorAll("[data-label]")) node.setAttribute("aria-label", say(node.dataset.label));
  for (const node of root.querySelectorAll("[data-hint]")) node.setAttribute("placeholder", say(node.dataset.hint));
};
