// Scheduling conflicts of an idealised schedule over time: a curve per workload, with a band up to the worst second.
views.conflicts = (mount) => {
  if (!content.conflicts.length) return false;
  const number = (value) => value.toLocaleString("en-US");
  return overTime(mount, {
    by: "conflicts", name: "Scheduling conflicts over time", what: "workload", names: content.conflicts.map((one) => one.name || "conflicts"),
    settings: [{ name: "", members: content.conflicts.map((_, at) => at) }], curves: content.conflicts,
    panels: [
      { key: "waiting", low: "waiting", high: "waiting_max", largest: "waiting_max", name: "waiting tasks", scale: 1, text: digits, tick: number },
      { key: "collisions", low: "collisions", high: "collisions_max", largest: "collisions_max", name: "collisions", scale: 1, text: digits, tick: number },
    ],
  });
};
