import { type RefObject, useCallback, useLayoutEffect, useRef, useState } from 'react'

/** Browsers cap the height of an element: Firefox at 17.9 million pixels. */
const tallest = 15_000_000

type Scroll = {
  /** How far it is scrolled, in pixels of all rows. */
  readonly position: number
  /** The first row that is in view, and how many are. */
  readonly first: number
  readonly visible: number
  /** Where the first row stands, from the top of what is scrolled. */
  readonly top: number
  /** The height of what is scrolled. */
  readonly height: number
  readonly scrollTo: (index: number) => void
}

type ScrollOptions = {
  readonly frame: RefObject<HTMLElement | null>
  readonly count: number
  readonly rowHeight: number
  /** Above the rows, always in view. */
  readonly headHeight: number
  /** Where it begins. */
  readonly position?: number
}

/**
 * Which rows of any number are in view. Where all of them together are taller than a browser allows, the bar stands for a
 * part of them: it moves by the share that was scrolled, while the wheel still moves row by row.
 */
export function useGridScroll({ frame, count, rowHeight, headHeight, position: begin = 0 }: ScrollOptions): Scroll {
  const natural = count * rowHeight
  const height = Math.min(natural, tallest)
  const [view, setView] = useState({ position: begin, scrollTop: 0, room: 600 })
  const exact = useRef({ position: 0, scrollTop: 0 })
  const room = Math.max(rowHeight, view.room - headHeight)
  const scale = natural > height ? (natural - room) / (height - room) : 1

  const move = useCallback(
    (position: number) => {
      const element = frame.current
      if (element === null) return
      const limited = Math.min(Math.max(0, position), Math.max(0, natural - room))
      element.scrollTop = limited / scale
      exact.current = { position: limited, scrollTop: element.scrollTop }
      setView((before) => ({ ...before, position: limited, scrollTop: element.scrollTop }))
    },
    [frame, natural, room, scale],
  )

  useLayoutEffect(() => {
    if (begin > 0) move(begin)
    // Later it is scrolled by whoever looks at it.
  }, [])

  useLayoutEffect(() => {
    const element = frame.current
    if (element === null) return
    const onScroll = () => {
      const { scrollTop } = element
      // Our own movement comes back as an event: it was more exact than the bar can be.
      if (Math.abs(scrollTop - exact.current.scrollTop) > 1) exact.current = { position: scrollTop * scale, scrollTop }
      const { position } = exact.current
      setView((before) =>
        before.position === position && before.scrollTop === scrollTop ? before : { ...before, position, scrollTop },
      )
    }
    const onWheel = (event: WheelEvent) => {
      if (scale === 1 || event.ctrlKey || event.deltaY === 0) return
      event.preventDefault()
      element.scrollLeft += event.deltaX
      move(exact.current.position + event.deltaY * (event.deltaMode === 1 ? rowHeight : 1))
    }
    const observer = new ResizeObserver(() => setView((before) => ({ ...before, room: element.clientHeight })))
    observer.observe(element)
    element.addEventListener('scroll', onScroll, { passive: true })
    element.addEventListener('wheel', onWheel, { passive: false })
    return () => {
      observer.disconnect()
      element.removeEventListener('scroll', onScroll)
      element.removeEventListener('wheel', onWheel)
    }
  }, [frame, scale, rowHeight, move])

  const first = Math.max(0, Math.min(count - 1, Math.floor(view.position / rowHeight)))
  const scrollTo = useCallback(
    (index: number) => {
      const { position } = exact.current
      const start = index * rowHeight
      if (start < position) move(start)
      else if (start + rowHeight > position + room) move(start + rowHeight - room)
    },
    [move, room, rowHeight],
  )
  return {
    position: view.position,
    first,
    visible: Math.ceil(room / rowHeight) + 1,
    top: scale === 1 ? first * rowHeight : view.scrollTop + first * rowHeight - view.position,
    height,
    scrollTo,
  }
}
