"""What can be computed of a page's accessibility: names, labels, ids, headings, and contrast as WCAG 2.1 counts it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

AUDIT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8").partition("\n")[2]


def complaints_about(page: Page) -> list[str]:
    """What somebody could not see, hear or reach."""
    found: list[str] = page.evaluate(AUDIT)
    return found


def unreachable(page: Page, most: int = 400) -> list[str]:
    """What can be clicked, and the tab key never comes to or shows no ring around; grids are one stop."""
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached: set[str] = set()
    for _ in range(most):
        page.keyboard.press("Tab")
        told = page.evaluate(
            """() => {
              const one = document.activeElement;
              if (!one || one === document.body) return null;
              one.dataset.reached = "";
              const style = getComputedStyle(one);
              const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
              return ring ? "" : one.outerHTML.slice(0, 120);
            }"""
        )
        if told is None:
            break
        if told:
            reached.add(f"no ring: {told}")
    missed: list[str] = page.evaluate(
        """[...document.querySelectorAll("a[href], button, input, select, textarea")]
          .filter((one) => one.checkVisibility() && one.type !== "hidden" && !("reached" in one.dataset)
            && !(one.classList.contains("cell") && one.tabIndex < 0)).map((one) => one.outerHTML.slice(0, 120))"""
    )
    return [*sorted(reached), *missed]
