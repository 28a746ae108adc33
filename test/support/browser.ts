import { type Browser, chromium } from 'playwright-core'
import { afterAll, describe } from 'vitest'
import { chromiumHint, findChromium } from '../../scripts/chromium.ts'

// Each test file evaluates this module for itself; the process, with its one browser, is what they share.
type Shared = { readonly path: string | undefined; browser?: Promise<Browser> }
const place = globalThis as { daybookTestBrowser?: Shared }
place.daybookTestBrowser ??= { path: findChromium() }
const shared = place.daybookTestBrowser

/** `describe` for tests that need a browser: skipped, with a hint, where there is none. */
export const describeWithBrowser = describe.skipIf(shared.path === undefined)

/** The browser of this process, without a window; what a test file has opened in it is closed after the file. */
export async function startBrowser(): Promise<Browser> {
  const running = await shared.browser
  if (!running?.isConnected()) shared.browser = launch(shared.path!)
  return shared.browser!
}

/** It ends with this process. */
function launch(executablePath: string): Promise<Browser> {
  // A graphics card in software costs more than it gives.
  const args = ['--disable-gpu', '--disable-software-rasterizer']
  // A sandboxed frame has a process of its own, so that one that hangs stops nothing else: other browsers do so unasked.
  args.push('--site-per-process')
  // Chromium refuses to run its sandbox as root, as which containers run tests.
  if (process.getuid?.() === 0) args.push('--no-sandbox')
  return chromium.launch({ executablePath, args })
}

afterAll(async () => {
  const browser = await shared.browser
  await Promise.all((browser?.contexts() ?? []).map((context) => context.close()))
})

if (shared.path === undefined)
  process.stderr.write(`chromium is not installed: the tests that need a browser are skipped (${chromiumHint})\n`)
