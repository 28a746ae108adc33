import type { Logger } from 'pino'
import { quoteText } from '../sql.ts'

/** Facts of the way between a process and a server. */
export type LineFacts = {
  readonly isPooled: boolean
  /** A session stays with the client that has opened it: LISTEN, advisory locks and whatever else outlives a transaction work. */
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

/** Settings that the statements of a pool rely on, besides what the address itself asks for. */
type SessionNeeds = { readonly transactionTimeoutMs: number; readonly readOnly: boolean }

/**
 * The settings that statements run under, in the two ways in which they get there: told to a session when it is opened,
 * or, where sessions change from one transaction to the next, to each transaction.
 */
export type SessionSettings = {
  /** The startup parameter `options`: all of them, and whatever else the address asks for by it. */
  readonly ofSession: string
  /** The part of the address's `options` that is no setting (some services find the database by it). */
  readonly ofAddress: string | undefined
  /** SQL that gives them to a session that is open. */
  readonly afterOpening: string
  /** SQL that gives them to the transaction in which it is run. */
  readonly ofTransaction: string
}

/** UTC so that text forms of timestamps do not depend on the server. */
export function settingsOf(url: string, needs: SessionNeeds): SessionSettings {
  const { options, settings, rest } = readOptions(url)
  const ofSession = { ...settings, ...neededSettings(needs) }
  // A transaction that has begun is told by another name.
  const { default_transaction_read_only: _default, ...others } = ofSession
  const ofTransaction = { ...others, ...(needs.readOnly && { transaction_read_only: 'on' }) }
  const own = sessionOptions(needs.transactionTimeoutMs, needs.readOnly)
  return {
    // The later one wins.
    ofSession: options === undefined ? own : `${options} ${own}`,
    ofAddress: rest,
    afterOpening: setSql(ofSession, false),
    ofTransaction: setSql(ofTransaction, true),
  }
}

function setSql(settings: Readonly<Record<string, string>>, isLocal: boolean): string {
  const calls = Object.entries(settings).map(
    ([name, value]) => `set_config(${quoteText(name)}, ${quoteText(value)}, ${isLocal})`,
  )
  return `select ${calls.join(', ')}`
}

/** As a startup parameter, for sessions of one's own. */
export function sessionOptions(transactionTimeoutMs: number, readOnly: boolean): string {
  return Object.entries(neededSettings({ transactionTimeoutMs, readOnly }))
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ')
}

/**
 * Many read at the same time: a report that takes several cores takes them from all who ask for little, and its place
 * (docs/overload.md) is meant to be one.
 */
const oneProcessAStatement = { max_parallel_workers_per_gather: '0' }

/** By the names of PostgreSQL. */
export function neededSettings({ transactionTimeoutMs, readOnly }: SessionNeeds): Record<string, string> {
  return {
    timezone: 'UTC',
    statement_timeout: String(transactionTimeoutMs),
    idle_in_transaction_session_timeout: String(transactionTimeoutMs),
    ...(readOnly && { default_transaction_read_only: 'on', ...oneProcessAStatement }),
  }
}

type StartupOptions = {
  readonly options: string | undefined
  readonly settings: Readonly<Record<string, string>>
  readonly rest: string | undefined
}

const setting = /(?:^|\s)(?:-c\s*|--)([\w.-]+)=((?:\\.|[^\s\\])*)/g

/** `options` of an address, e.g. `-c search_path=app`. */
function readOptions(url: string): StartupOptions {
  const options = new URL(url).searchParams.get('options') ?? undefined
  if (options === undefined) return { options, settings: {}, rest: undefined }
  const found = [...options.matchAll(setting)].map(([, name = '', value = '']): [string, string] => [
    name.toLowerCase().replaceAll('-', '_'),
    value.replaceAll(/\\(.)/g, '$1'),
  ])
  const rest = options.replaceAll(setting, ' ').trim()
  return { options, settings: Object.fromEntries(found), rest: rest === '' ? undefined : rest }
}
