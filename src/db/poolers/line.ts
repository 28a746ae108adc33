import type { Logger } from 'pino'

/** Facts of the way between a process and a server. */
export type LineFacts = {
  readonly isPooled: boolean
  /** A session stays with whoever has opened it: LISTEN, advisory locks and whatever else outlives a transaction work. */
  readonly keepsSessions: boolean
  /** Settings that a session is opened with reach it. */
  readonly keepsSettings: boolean
  /** A statement that was prepared under a name is there when it is run. */
  readonly keepsNames: boolean
}

/**
 * The way to a server, as all pools of an address know it: settings that a pooler in between does not keep go with each
 * transaction, and named statements are done without. Discoveries made later apply from then on.
 */
export type Line = {
  facts(): LineFacts
  /** It was looked at again. */
  found(facts: LineFacts): void
  /** Whether statements are sent by name. */
  isNamed(): boolean
  /** A statement that was prepared was not there, or one that was not was. */
  nameLost(error: unknown): void
  /** Settings of a session did not arrive. */
  settingsLost(found: object): void
}

/** The way between this process and its database. */
export type ServerLine = { readonly line: Line }

/** As without anything in between. */
export const plainLine: LineFacts = { isPooled: false, keepsSessions: true, keepsSettings: true, keepsNames: true }

type LineOptions = {
  readonly facts?: LineFacts
  /** DATABASE_PREPARED_STATEMENTS. */
  readonly named: boolean
  readonly log: Logger
}

export function openLine({ facts: first = plainLine, named, log }: LineOptions): Line {
  let facts = first
  return {
    facts: () => facts,
    found: (next) => {
      facts = next
    },
    isNamed: () => named && facts.keepsNames,
    nameLost: (error) => {
      if (!facts.keepsNames) return
      facts = { ...facts, keepsNames: false }
      log.warn({ err: error }, 'a pooler does not keep prepared statements: they are sent without names from now on')
    },
    settingsLost: (found) => {
      if (!facts.keepsSettings) return
      facts = { ...facts, keepsSettings: false }
      log.warn({ found }, 'settings of a session have not arrived: they are sent with each transaction from now on')
    },
  }
}
