import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { onTestFinished } from 'vitest'

export type PagePool = {
  /**
   * A page for the rest of the test, without cookies, stored values, routes or listeners of another one. The same person with the
   * same options gets one that was used before: a new page takes two seconds of processor time, for three processes and to load and
   * compile anew all that it shows. One that a test has closed, or opened others beside, is not used again.
   */
  take(person: string | undefined, options: BrowserContextOptions): Promise<Page>
}

/** The pages of one server. `restingPlace` is an address of it that shows next to nothing. */
export function openPagePool(browser: Browser, restingPlace: string): PagePool {
  const resting = new Map<string, Page[]>()
  return {
    async take(person, options) {
      const key = JSON.stringify([person, options])
      const pages = resting.get(key) ?? []
      resting.set(key, pages)
      const page = pages.pop() ?? (await (await browser.newContext(options)).newPage())
      onTestFinished(async () => {
        if (await isCleared(page, options, restingPlace)) pages.push(page)
        else await page.context().close()
      })
      return page
    },
  }
}

const events = ['console', 'pageerror', 'dialog', 'request', 'response', 'download', 'websocket'] as const

/** Whether the page is as it was before a test used it. */
async function isCleared(page: Page, options: BrowserContextOptions, restingPlace: string): Promise<boolean> {
  const context = page.context()
  if (page.isClosed() || context.pages().length > 1) return false
  for (const event of events) page.removeAllListeners(event)
  try {
    await page.unrouteAll({ behavior: 'ignoreErrors' })
    await page.goto(restingPlace)
    await page.evaluate('localStorage.clear(), sessionStorage.clear()')
    await context.clearCookies()
    const { colorScheme = 'light', reducedMotion = 'no-preference', viewport = null } = options
    await page.emulateMedia({ colorScheme, reducedMotion })
    if (viewport !== null) await page.setViewportSize(viewport)
    return true
  } catch {
    // The server has ended, or the page has crashed; the next one is new.
    return false
  }
}
