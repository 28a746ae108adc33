import { type RefObject, useLayoutEffect } from 'react'
import { bottomAbove } from './room.ts'

/** Keeps an element off the bars of the page, which scroll, come and go while it is shown. */
export function useRoom(element: RefObject<HTMLElement | null>, isShown: boolean): void {
  useLayoutEffect(() => {
    const shown = element.current
    if (!isShown || shown === null) return
    const place = () => {
      const bars = [...document.querySelectorAll('[data-bar]')].map((one) => one.getBoundingClientRect())
      shown.style.bottom = `${bottomAbove(bars, shown.getBoundingClientRect(), innerHeight)}px`
    }
    place()
    const done = new AbortController()
    const { signal } = done
    for (const event of ['scroll', 'transitionend'])
      document.addEventListener(event, place, { signal, capture: true, passive: true })
    addEventListener('resize', place, { signal })
    const sizes = new ResizeObserver(place)
    sizes.observe(shown)
    const parts = new MutationObserver(place)
    parts.observe(document.body, { childList: true, subtree: true })
    return () => {
      done.abort()
      sizes.disconnect()
      parts.disconnect()
    }
  }, [element, isShown])
}
