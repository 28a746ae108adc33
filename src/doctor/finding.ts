/** The result of one check. A remedy belongs to everything that is not `ok`. */
export type Finding = {
  /** Its name, the same in every run. */
  readonly check: string
  readonly status: 'ok' | 'warning' | 'problem'
  /** One line. */
  readonly says: string
  /** The way to fix it, one line. */
  readonly remedy?: string
}

export function ok(check: string, says: string): Finding {
  return { check, status: 'ok', says }
}

/** Works, but worse, or not for long. */
export function warning(check: string, says: string, remedy: string): Finding {
  return { check, status: 'warning', says, remedy }
}

/** Does not work. */
export function problem(check: string, says: string, remedy: string): Finding {
  return { check, status: 'problem', says, remedy }
}

/** Text of users, without characters that a terminal would obey. */
export const oneLine = (text: string): string => text.replace(/[\p{C}\s]+/gu, ' ').slice(0, 100)

/** The message of whatever was thrown, as one line. */
export function reasonOf(thrown: unknown): string {
  const { message, code } = thrown as { message?: string; code?: string }
  return (message || code || String(thrown)).replace(/\s+/g, ' ')
}
