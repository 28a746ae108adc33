import type { Page } from 'playwright-core'

/**
 * What people cannot read or reach in the part of a page that is in view, in words: text that is cut off without a sign of it, and
 * controls that something else lies on. What lies on purpose on what scrolls below it is sticky or fixed, and left out.
 */
export async function layoutFaults(page: Page): Promise<readonly string[]> {
  return (await page.evaluate(`(${faultsHere})()`)) as readonly string[]
}

/** Runs in the page, so it is text that needs nothing from here. */
const faultsHere = `() => {
  const name = (element) => {
    const text = (element.getAttribute('aria-label') ?? element.textContent ?? '').trim().replace(/\\s+/g, ' ').slice(0, 50)
    return element.tagName.toLowerCase() + ' “' + text + '”'
  }
  // A toast is a dialog too, beside which the page stays in use.
  const over = ['[role=dialog]:not([aria-modal=false])', '[role=alertdialog]:not([aria-modal=false])', '[role=menu]', '[role=listbox]']
  const dialog = [...document.querySelectorAll(over.join())].at(-1)
  const root = dialog ?? document.body
  const isSeen = (element) => {
    const { width, height, left, right, top, bottom } = element.getBoundingClientRect()
    return width > 1 && height > 1 && right > 0 && bottom > 0 && left < innerWidth && top < innerHeight &&
      element.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true }) &&
      element.closest('[inert], [aria-hidden=true]') === null
  }
  const isScrolledAway = (element, x, y) => {
    for (let one = element.parentElement; one !== null; one = one.parentElement) {
      const { overflowX, overflowY } = getComputedStyle(one)
      if (overflowX === 'visible' && overflowY === 'visible') continue
      const { left, right, top, bottom } = one.getBoundingClientRect()
      if (x < left || x > right || y < top || y > bottom) return true
    }
    return false
  }
  const floats = (element, below) => {
    for (let one = element; one !== null && !one.contains(below); one = one.parentElement)
      if (['sticky', 'fixed'].includes(getComputedStyle(one).position)) return true
    return false
  }
  const faults = []
  for (const element of root.querySelectorAll('h1, h2, h3, p, label, button, a, summary, dt, dd, th, td, li, small, strong')) {
    if (!isSeen(element)) continue
    const { overflowX, textOverflow } = getComputedStyle(element)
    const isCut = overflowX === 'hidden' || overflowX === 'clip'
    if (isCut && textOverflow !== 'ellipsis' && element.scrollWidth > element.clientWidth + 1 && !element.matches('.visually-hidden'))
      faults.push(name(element) + ' is cut off')
  }
  for (const element of root.querySelectorAll('button, a[href], input, select, textarea, [role=tab], [role=option]')) {
    if (!isSeen(element)) continue
    const { left, right, top, bottom } = element.getBoundingClientRect()
    // Of what is half in view, the other half says nothing.
    if (left < 0 || right > innerWidth || top < 0 || bottom > innerHeight) continue
    const [x, y] = [(left + right) / 2, (top + bottom) / 2]
    if (isScrolledAway(element, x, y)) continue
    const hit = document.elementFromPoint(x, y)
    if (hit === null || element.contains(hit) || hit.contains(element) || hit.closest('label')?.contains(element)) continue
    if (!floats(hit, element)) faults.push(name(hit) + ' lies on ' + name(element))
  }
  return faults
}`

/** Goes some steps by the keyboard, and gives what has the focus without showing it. */
export async function unseenFocus(page: Page, steps: number): Promise<readonly string[]> {
  const unseen: string[] = []
  for (let step = 0; step < steps; step += 1) {
    await page.keyboard.press('Tab')
    const found = await page.evaluate(focusHere)
    if (typeof found === 'string') unseen.push(found)
  }
  return unseen
}

const focusHere = `(() => {
  const focused = document.activeElement
  if (focused === null || focused === document.body || focused.tagName === 'IFRAME') return null
  // The ring may be drawn by what is around the control, as around a field with an icon.
  for (const one of [focused, focused.parentElement]) {
    const { outlineStyle, outlineWidth, boxShadow, borderColor } = getComputedStyle(one)
    if ((outlineStyle !== 'none' && parseFloat(outlineWidth) > 0) || boxShadow.includes('inset')) return null
  }
  return focused.outerHTML.slice(0, 150)
})()`
