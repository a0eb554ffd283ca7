import { ask, openDialog } from "./dialogs.js";
import { icon, make } from "./dom.js";
import { kExampleTools, kNumbers, toolsOf } from "./settings.js";
import { t } from "./words.js";

function labelled(name, field, note) {
  const id = `set-${name}`;
  field.id = id;
  field.setAttribute("aria-describedby", `${id}-note`);
  return make("div", { class: "field" }, make("label", { for: id, text: t(name) }), field,
    make("p", { class: "soft", id: `${id}-note`, text: note }));
}

/**
 * Makes a number field. An empty field uses the server's value; a number out of range is reported
 * and not used.
 */
function numberField({ name, min, max, step }, settings, served, onChange) {
  const input = make("input", { type: "number", inputmode: "decimal", min, max, step: step < 1 ? "any" : step, placeholder: served ?? t("byServer") });
  input.value = settings.numbers[name] ?? "";
  const field = labelled(name, input, t(`${name}_note`));
  const note = field.lastChild;
  input.addEventListener("input", () => {
    const good = input.validity.valid;
    input.setAttribute("aria-invalid", String(!good));
    note.textContent = good ? t(`${name}_note`) : t("outOfRange", { min, max });
    note.classList.toggle("wrong", !good);
    if (!good) return;
    if (input.value === "") delete settings.numbers[name];
    else settings.numbers[name] = input.valueAsNumber;
    onChange();
  });
  return field;
}

function systemField(settings, onChange) {
  const area = make("textarea", { rows: "3", placeholder: t("systemHint") });
  area.value = settings.system;
  area.addEventListener("input", () => {
    settings.system = area.value;
    onChange();
  });
  return labelled("system", area, t("system_note"));
}

function toolFields(settings, onChange) {
  const area = make("textarea", { rows: "6", spellcheck: "false", class: "source", placeholder: "[]" });
  const choice = make("select");
  const listed = () => {
    const names = (toolsOf(area.value) ?? []).map((tool) => tool.function.name);
    const options = ["auto", "none", "required"].map((name) => make("option", { value: name, text: t(`choice_${name}`) }));
    choice.replaceChildren(...options, ...names.map((name) => make("option", { value: name, text: name })));
    choice.value = settings.toolChoice;
    if (choice.selectedIndex < 0) choice.value = settings.toolChoice = "auto";
  };
  const field = labelled("tools", area, t("tools_note"));
  const note = field.lastChild;
  const check = () => {
    const good = toolsOf(area.value) !== null;
    area.setAttribute("aria-invalid", String(!good));
    note.textContent = t(good ? "tools_note" : "toolsWrong");
    note.classList.toggle("wrong", !good);
    if (!good) return;
    settings.tools = area.value;
    listed();
    onChange();
  };
  area.value = settings.tools;
  listed();
  area.addEventListener("input", check);
  choice.addEventListener("change", () => {
    settings.toolChoice = choice.value;
    onChange();
  });
  const example = make("button", { type: "button", class: "small-button" }, icon("plus"), make("span", { text: t("toolsExample") }));
  example.addEventListener("click", () => {
    area.value = kExampleTools;
    check();
  });
  field.append(example);
  return make("div", {}, field, labelled("toolChoice", choice, t("toolChoice_note")));
}

function section(title, ...content) {
  return make("section", {}, make("h3", { text: t(title) }), ...content);
}

/**
 * Opens the settings of a chat. `served`: the server's defaults for unset numbers, if known.
 * `onChange()` runs after each change, `onDeleteAll()` after confirmation. `part`: the id of the
 * field that gets the focus.
 */
export function openSettings(settings, served, onChange, onDeleteAll, part = null) {
  const numbers = kNumbers.map((field) => numberField(field, settings, served?.[field.name], onChange));
  const reset = make("button", { type: "button", class: "small-button" }, icon("again"), make("span", { text: t("resetNumbers") }));
  const deleteAll = make("button", { type: "button", class: "small-button danger" }, icon("trash"), make("span", { text: t("deleteAll") }));
  const keys = [["Enter", "keyEnter"], ["Shift+Enter", "keyLine"], ["Esc", "keyStop"], ["↑", "keyUp"], ["/", "keySlash"]];
  const content = make("div", { class: "dialog-body" },
    make("p", { class: "soft", text: t("settingsNote") }),
    section("prompt", systemField(settings, onChange)),
    section("sampling", make("div", { class: "grid" }, ...numbers), reset),
    section("tools", toolFields(settings, onChange)),
    section("keys", make("dl", { class: "keys" }, ...keys.flatMap(([key, word]) => [make("dt", {}, make("kbd", { text: key })), make("dd", { text: t(word) })]))),
    section("data", make("p", { class: "soft", text: t("dataNote") }), deleteAll));
  const dialog = openDialog(t("settings"), content, () => {});
  reset.addEventListener("click", () => {
    settings.numbers = {};
    for (const input of dialog.querySelectorAll(".grid input")) {
      input.value = "";
      input.dispatchEvent(new Event("input"));
    }
  });
  deleteAll.addEventListener("click", async () => {
    const consent = await ask({ title: t("deleteAll"), note: t("deleteAllNote"), ok: t("deleteAll"), danger: true });
    if (consent === null) return;
    dialog.close();
    onDeleteAll();
  });
  if (part) dialog.querySelector(`#set-${part}`).focus();
}
