/** The toolbar stays at the top of the window; what a link or the keyboard leads to must not be below it. */

/**
 * Keeps its height in `--toolbar-height`. In a narrow window, only its `variants` stay, and the toolbar
 * itself has no box.
 */
export function keepClear(toolbar: HTMLElement, variants: HTMLElement): void {
  const update = () => {
    const height = toolbar.offsetHeight || variants.offsetHeight;
    document.documentElement.style.setProperty("--toolbar-height", `${height}px`);
  };
  const observer = new ResizeObserver(update);
  observer.observe(toolbar);
  observer.observe(variants);
  // The browser scrolls to the fragment of the address before the observer is called.
  queueMicrotask(update);
}
