type Box = { readonly left: number; readonly right: number; readonly top: number; readonly bottom: number }

/** Marks a bar of buttons that stays in view: `<div {...bar}>`. Messages over the page stand above it. */
export const bar = { 'data-bar': '' }

const gap = 16

/**
 * How far above the lower edge of the window something stands that shall lie on none of the bars, by the place where it would
 * stand without them. It stays in the window, even where there is no such place.
 */
export function bottomAbove(bars: readonly Box[], { left, right, top, bottom }: Box, windowHeight: number): number {
  const height = bottom - top
  let edge = windowHeight - gap
  for (const one of bars.toSorted((a, b) => b.bottom - a.bottom)) {
    const isBeside = one.right <= left || one.left >= right || one.top >= edge || one.bottom <= edge - height
    if (!isBeside) edge = one.top - gap
  }
  return windowHeight - Math.max(edge, Math.min(height + gap, windowHeight - gap))
}
