// Why a task waited: the decisions about it, where the runs were asked to explain themselves.
const CHOSEN = { placed: "placed", queued: "no place found", refused: "refused", unsatisfiable: "fits no machine", preempted: "preempted", lost: "lost" };

views.why = (mount) => {
  if (!content.why.length) return false;
  const state = { run: content.why[0] }, answer = make("div", { "aria-live": "polite" }), list = make("div");
  const field = make("input", { type: "text", size: 12, "aria-label": "JOB or JOB/TASK", placeholder: "14/3", autocomplete: "off" });
  const named = (run) => `${run.label}, seed ${run.seed}`;
  const asTask = ([job, place, submitted, started, finished, machine, taken]) => ({ job, place, submitted, started, finished, machine, steps: taken });

  function told(task) {
    const where = task.machine >= 0 ? ` on machine ${task.machine}` : "";
    const rows = task.steps.map(([at, by, chosen, machine, asked, age, passed, omitted]) => [
      duration(at), by, CHOSEN[chosen] || chosen, machine >= 0 ? String(machine) : "", asked, duration(age),
      passed.map(([scope, reason, count]) => `${whole(count)} ${scope} ${reason}`).join(", ") + (omitted ? ` (before it ${omitted} decisions that were not kept)` : "")]);
    return [make("h3", {}, `Task ${task.job}/${task.place}`),
      make("p", {}, `Submitted at ${duration(task.submitted)}, started at ${duration(task.started)}${where}, finished at ${duration(task.finished)}.`),
      rows.length ? grid(["at", "by", "decision", "machine", "asked", "view age", "passed over (units)"], rows, 3) : make("p", { class: "note" }, "No decision about it was kept.")];
  }
  async function look(question) {
    const found = /^\s*(\d+)(?:\s*\/\s*(\d+))?\s*$/.exec(question);
    if (!found) { answer.replaceChildren(make("p", { class: "note" }, "Write JOB or JOB/TASK, as 14 or 14/3.")); return; }
    const job = Number(found[1]), place = found[2] === undefined ? null : Number(found[2]);
    if (content.serves) {
      try {
        const tasks = (await ask("why", { run: content.why.indexOf(state.run), question: place === null ? `${job}` : `${job}/${place}` })).map(asTask);
        answer.replaceChildren(...tasks.flatMap(told));
      } catch (problem) { answer.replaceChildren(make("p", { class: "note" }, problem.message)); }
      return;
    }
    const tasks = state.run.tasks.map(asTask).filter((task) => task.job === job && (place === null || task.place === place));
    answer.replaceChildren(...(tasks.length ? tasks.slice(0, 10).flatMap(told) : [make("p", { class: "note" }, `Of this task the page holds nothing: volery why ${job}${place === null ? "" : `/${place}`} answers, and so does volery browse.`)]));
  }
  function fill() {
    const tasks = state.run.tasks.map(asTask);
    const rows = tasks.slice(0, 20).map((task) => [
      make("button", { type: "button", class: "link", onclick: () => { field.value = `${task.job}/${task.place}`; look(field.value); } }, `${task.job}/${task.place}`),
      duration(task.submitted), task.started === null ? "never" : duration(task.started - task.submitted), String(task.steps.length)]);
    list.replaceChildren(make("p", { class: "note" }, `The tasks that waited longest; this page holds ${whole(tasks.length)} of ${whole(state.run.total)}.`), grid(["task", "submitted at", "waited", "decisions kept"], rows, 1));
    answer.replaceChildren();
  }
  const form = make("form", { class: "controls", onsubmit: (event) => { event.preventDefault(); look(field.value); } },
    content.why.length > 1 ? selection("run", content.why.map((run, at) => [at, named(run)]), (at) => { state.run = content.why[at]; fill(); }, 0) : make("span", { class: "soft" }, named(state.run)),
    field, make("button", { type: "submit" }, "why did it wait?"));
  mount.append(form, answer, list);
  fill();
  return true;
};
