import { spawnSync } from 'node:child_process'

// Without the frame of a window around each page, which is never seen, the first takes a third less processor time than the others.
const names = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome']

/** The path of the Chromium of this machine, for tests and measurements; undefined where there is none. */
export function findChromium(): string | undefined {
  const name = names.find((one) => spawnSync(one, ['--version']).status === 0)
  return name === undefined ? undefined : spawnSync('which', [name]).stdout.toString().trim()
}

/** Said where a browser is wanted and there is none. */
export const chromiumHint = 'Debian: apt-get install chromium-headless-shell; macOS: brew install chromium'
