import type pg from 'pg'
import type { Account, Role } from './daybook.ts'

export type Request = {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  readonly path: string
  readonly body?: string
  readonly headers?: Readonly<Record<string, string>>
}

/** The servers that are compared: the bare one, Daybook without and with its data cache. */
export const sides = ['ceiling', 'daybook', 'cached'] as const
export type Side = (typeof sides)[number]
/** The server that a request is written for; Daybook with and without its cache gets the same. */
export type Kind = 'ceiling' | 'daybook'

/** The n-th request of a case, by whom it is sent. */
export type Asked = { readonly n: number; readonly as: Account; readonly role: Role; readonly kind: Kind }

/** One line of the table per role. */
export type Case = {
  /** Of the list; several cases may have one. */
  readonly id: string
  readonly title: string
  readonly roles: readonly Role[]
  readonly connections: number
  readonly status: number
  /** The rows that one request writes, where it writes many. */
  readonly rowsEach?: number
  request(asked: Asked): Request
  /** Before so many requests are sent, for a case that uses up what it asks for. */
  prepare?(sql: pg.Client, asked: Omit<Asked, 'n'>, requests: number): Promise<void>
  /** Whether a body can be an answer to it; called for every response, so cheap. */
  accepts(body: string): boolean
  /** The part of a parsed body that must be equal on both sides; undefined for rows that each side made itself. */
  comparable(body: never): unknown
}
