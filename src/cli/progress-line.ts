/** One line on standard error that changes: in place on a terminal, elsewhere a line every ten seconds. */
export function openProgressLine(quiet: boolean) {
  const isTerminal = process.stderr.isTTY === true
  const everyMs = isTerminal ? 100 : 10_000
  let shownAt = performance.now()
  let isOpen = false
  return {
    show(text: string): void {
      if (quiet || performance.now() - shownAt < everyMs) return
      shownAt = performance.now()
      isOpen = isTerminal
      process.stderr.write(isTerminal ? `\r\u001b[K${text}` : `${text}\n`)
    },
    end(): void {
      if (isOpen) process.stderr.write('\r\u001b[K')
      isOpen = false
    },
  }
}

const units = ['B', 'kB', 'MB', 'GB', 'TB']

export function sizeText(bytes: number): string {
  const step = bytes < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3))
  return `${(bytes / 1000 ** step).toFixed(step === 0 ? 0 : 1)} ${units[step]}`
}
