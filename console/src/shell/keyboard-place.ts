import { useRouter } from '@tanstack/react-router'
import { type RefObject, useEffect, useState } from 'react'

/** What lies over the page, and keeps the keyboard as long as it is there. */
const overlays = '[role=dialog], [role=alertdialog], [role=menu], [role=listbox]'

/**
 * Keeps the keyboard in the page, for those who walk by it or listen: on its content after the way to another page, on the grid, or
 * else on the content, after the element that had it is gone. What the page or an overlay has chosen itself stays.
 */
export function useKeyboardPlace(main: RefObject<HTMLElement | null>): void {
  const router = useRouter()
  useEffect(() => {
    let last: Element | undefined
    let isArriving = false
    let isPlanned = false
    const settle = () => {
      isPlanned = false
      const now = document.activeElement
      const isLost = now === document.body && last?.isConnected === false
      const content = main.current
      if (content === null || router.state.isLoading || now?.closest(overlays)) return
      if (isArriving && !content.contains(now)) content.focus({ preventScroll: true })
      else if (isLost) (content.querySelector<HTMLElement>('[role=grid]') ?? content).focus({ preventScroll: true })
      isArriving = false
    }
    // Once what is being closed has given the keyboard back.
    const plan = () => {
      if (isPlanned) return
      isPlanned = true
      requestAnimationFrame(() => requestAnimationFrame(settle))
    }
    const keep = ({ target }: FocusEvent) => {
      last = target instanceof Element ? target : undefined
    }
    // Where the pointer is pressed on nothing, no element has lost the keyboard.
    const forget = () => {
      last = undefined
    }
    document.addEventListener('focusin', keep)
    document.addEventListener('pointerdown', forget, true)
    const observer = new MutationObserver(plan)
    observer.observe(document.body, { childList: true, subtree: true })
    const unsubscribe = router.subscribe('onResolved', ({ pathChanged }) => {
      isArriving ||= pathChanged
      if (pathChanged) plan()
    })
    return () => {
      document.removeEventListener('focusin', keep)
      document.removeEventListener('pointerdown', forget, true)
      observer.disconnect()
      unsubscribe()
    }
  }, [router, main])
}

/** The title of the page, once another one than the first is shown: the browser says that of the first. */
export function useTitle(): string {
  const router = useRouter()
  const [title, setTitle] = useState('')
  useEffect(() => {
    let hasMoved = false
    const tell = () => hasMoved && setTitle(document.title)
    const observer = new MutationObserver(tell)
    observer.observe(document.head, { childList: true, characterData: true, subtree: true })
    const unsubscribe = router.subscribe('onResolved', ({ fromLocation, pathChanged }) => {
      hasMoved ||= pathChanged && fromLocation !== undefined
      tell()
    })
    return () => {
      observer.disconnect()
      unsubscribe()
    }
  }, [router])
  return title
}
