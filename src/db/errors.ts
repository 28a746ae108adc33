import { BackendTerminatedError, BackendTerminatedUnexpectedlyError, ConnectionError } from '@slonik/errors'
import { AppError, errors } from '../errors.ts'

/** The SQLSTATE of whatever pg or slonik threw; undefined when it came from elsewhere. */
export function sqlState(error: unknown): string | undefined {
  const { code, cause } = (error ?? {}) as { code?: unknown; cause?: unknown }
  if (typeof code === 'string' && stateText.test(code)) return code
  return cause === undefined || cause === error ? undefined : sqlState(cause)
}

/** Each has a digit; `EPIPE` is of the operating system. */
const stateText = /^(?=.*\d)[0-9A-Z]{5}$/

/** True when another process may have changed a table under a plan: reload the catalog and try once more. */
export function isStalePlan(error: unknown): boolean {
  const state = sqlState(error)
  return isPlanOver(error) || state === '42703' || state === '42P01' || state === '42704' || isMismatch(error)
}

/**
 * A prepared statement would give other columns than it did. The state alone says only that PostgreSQL cannot do something, which
 * no fresh catalog changes; the routine is the same in whatever language the server speaks.
 */
function isPlanOver(error: unknown): boolean {
  if (sqlState(error) !== '0A000') return false
  const { routine, message = '' } = databaseError(error)
  return routine === 'RevalidateCachedQuery' || message === 'cached plan must not change result type'
}

/** There is no such table or column. */
export function isNameMissing(error: unknown): boolean {
  const state = sqlState(error)
  return state === '42P01' || state === '42703'
}

/**
 * A value, an operator or a key of ON CONFLICT does not fit the columns: another process has changed their types or constraints,
 * or the statement was never right, and then it fails in the same way once the catalog is fresh.
 */
export function isMismatch(error: unknown): boolean {
  const state = sqlState(error)
  return state === '42883' || state === '42804' || state === '42P10'
}

/**
 * A prepared statement was not there when it was to be run, or was there when it was to be made: a pooler has changed the
 * session. PostgreSQL says so before it runs anything.
 */
export function isNameError(error: unknown): boolean {
  const state = sqlState(error)
  return state === '26000' || state === '42P05'
}

/**
 * A prepared statement whose table has changed since, in its result or in what its parameters were taken for; under a name it
 * stays so for the life of the session.
 */
export function isOutdated(error: unknown): boolean {
  return isPlanOver(error) || isMismatch(error)
}

/**
 * The line to the database broke, or there was none to get: by what the server says as it goes down or comes up, by what
 * the operating system says of a socket, or by what pg and slonik say of a connection that cannot be used any more.
 */
export function isConnectionLoss(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof AppError) return false
  const { code, cause } = error as { code?: unknown; cause?: unknown }
  if (typeof code === 'string' && (/^(08...|57P..)$/.test(code) || lossesOfSockets.has(code))) return true
  if (lossesOfSlonik.some((kind) => error instanceof kind)) return true
  // An error with a SQLSTATE comes from a server that is there.
  if (sqlState(error) === undefined && lossInWords.test(error.message)) return true
  return cause !== undefined && cause !== error && isConnectionLoss(cause)
}

/** The database, or the way to it, was in trouble: asked again later it may answer. */
export function isPassing(error: unknown): boolean {
  return isConnectionLoss(error) || clientError(error)?.status === 503
}

/**
 * The database went away or was not there, as only it and its clients say: an error of a socket or a timeout may be of whatever else
 * the code has asked.
 */
export function isDatabaseGone(error: unknown): boolean {
  const state = sqlState(error)
  if (state !== undefined) return /^(08...|57P0[123])$/.test(state)
  if (!(error instanceof Error)) return false
  const isSaid = error instanceof AnswerLost || lossesOfSlonik.some((kind) => error instanceof kind)
  if (isSaid || /^connection (terminated|ended)/i.test(error.message)) return true
  return error.cause !== undefined && error.cause !== error && isDatabaseGone(error.cause)
}

/**
 * Thrown where a statement may write and its connection was lost before its answer came: it may have been carried out, or
 * still be.
 */
export class AnswerLost extends Error {
  /** The process of the server that it was given to. */
  readonly processId: number

  constructor(cause: unknown, processId: number) {
    super('The connection was lost before the answer came', { cause })
    this.processId = processId
  }
}

const lossesOfSockets: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  'ENOTCONN',
  'ERR_STREAM_DESTROYED',
  'ERR_STREAM_WRITE_AFTER_END',
])

const lossesOfSlonik = [ConnectionError, BackendTerminatedError, BackendTerminatedUnexpectedlyError] as const

/**
 * The words of pg for a line that broke during a statement, or between leaving the pool and the statement, and those of
 * slonik for a connection that it has given up meanwhile.
 */
const lossInWords =
  /connection (terminated|ended)|timeout (exceeded|expired)|read timeout|is not queryable|client (is|was) (pending destroy|destroyed|closed)|released connection|pool (is being|has been) shut down/i

/** What is wrong with the database, for anybody: in words that name no host and quote neither SQL nor values. The log has the rest. */
export function reasonInWords(error: unknown): string {
  const state = sqlState(error)
  if (state !== undefined) return troubles[state] ?? troubles[state.slice(0, 2)] ?? `error ${state} of the database`
  const { code = '', message = '' } = databaseError(error)
  if (troubles[code] !== undefined) return troubles[code]
  if (/timeout|silent/i.test(message)) return 'no answer in time'
  return isConnectionLoss(error) ? 'connection lost' : 'unexpected error'
}

const [reset, unreachable, unresolved] = ['connection reset', 'host unreachable', 'host name not resolved']

const troubles: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: reset,
  ECONNABORTED: reset,
  EPIPE: reset,
  ETIMEDOUT: 'no answer in time',
  EHOSTUNREACH: unreachable,
  EHOSTDOWN: unreachable,
  ENETUNREACH: unreachable,
  ENETDOWN: unreachable,
  ENOTFOUND: unresolved,
  EAI_AGAIN: unresolved,
  '08': 'connection lost',
  '28': 'sign-in refused',
  '3D000': 'no such database',
  '42501': 'permission denied',
  '53': 'out of resources',
  '53300': 'too many connections',
  '57014': 'no answer in time',
  '57P01': 'connection ended by the database',
  '57P02': 'the database has crashed',
  '57P03': 'the database is starting or stopping',
}

/** The database could not make of a value what a statement asks for: a number of a text, a pattern, a path in JSON. */
export function isDataError(error: unknown): boolean {
  const state = sqlState(error)
  return state?.startsWith('22') === true || (state === '42601' && clientError(error) !== undefined)
}

/** A value does not fit a column or its domain. A type of an extension may tell so by an internal error. */
export function isMisfit(error: unknown): boolean {
  const state = sqlState(error) ?? ''
  return state.startsWith('22') || state.startsWith('23') || state === 'XX000'
}

/**
 * The answer to a database error that a client caused; undefined for everything that is ours. The
 * database's error travels as `cause`, of which EXPOSE_ERROR_DETAILS shows what `exposedWords` has.
 */
export function clientError(error: unknown): AppError | undefined {
  if (error instanceof AppError) return error
  if (error instanceof AnswerLost) return errors.outcomeUnknown(error)
  const state = sqlState(error)
  if (state === undefined) return isConnectionLoss(error) ? unavailable(error) : undefined
  const known = answers[state] ?? answers[state.slice(0, 2)]
  return known?.(error)
}

/** The column that an error of the database is about, where it says so. */
export function columnOf(error: unknown): string | undefined {
  return databaseError(error).column || undefined
}

/** The columns of the key that a row has in common with another one, or that leads nowhere; empty for other errors. */
export const keyColumnsOf = (error: unknown): readonly string[] => keyProblemOf(error).columns

/** The same with the text of their values, which may be of rows that the caller does not see. */
export function keyProblemOf(error: unknown): { readonly columns: readonly string[]; readonly values: string } {
  if (keyProblems[sqlState(error) ?? ''] === undefined) return noKey
  // `Key (author_Id)=(…) is not present in table …`, in whatever language the server speaks. The first parentheses are of
  // columns: what follows them are values, which may look the same.
  const [, columns, values = ''] = /^[^(]*\((.+?)\)=\((.*)\)/s.exec(databaseError(error).detail ?? '') ?? []
  const names = columns?.split(', ').map((name) => name.replaceAll('"', '')) ?? []
  // Of an index over expressions there are no columns to name.
  return names.every((name) => /^[\w$]+$/.test(name)) ? { columns: names, values } : noKey
}

const noKey = { columns: [], values: '' }

/**
 * EXPOSE_ERROR_DETAILS shows what this gives: the words of the database, unless they may hold values. Those
 * can be of fields and rows that the caller does not see, such as the value that another row has, or that a filter could not
 * cast; so errors about data name fields at most, and no other table. Undefined where the generic words are all.
 */
export function exposedWords(error: unknown): string | undefined {
  const state = sqlState(error)
  if (state === undefined) return undefined
  if (!aboutData.has(state.slice(0, 2))) return databaseError(error).detail ?? databaseError(error).message
  const columns = keyColumnsOf(error).join(', ')
  return columns === '' ? undefined : keyProblems[state]?.(`Key (${columns})`, databaseError(error).detail ?? '')
}

/** The classes of data that cannot be read, of constraints, and of values that are too large. */
const aboutData: ReadonlySet<string> = new Set(['22', '23', '54'])

const keyProblems: Readonly<Record<string, (key: string, detail: string) => string | undefined>> = {
  '23505': (key) => `${key} already exists`,
  '23503': (key, detail) => {
    if (/ is still referenced from table "[^"]*"\.$/.test(detail)) return `${key} is still referenced`
    return / is not present in table "[^"]*"\.$/.test(detail) ? `${key} refers to no record` : undefined
  },
  '23001': (key) => `${key} is still referenced`,
}

/**
 * A row without a value that it needs; `field` is its path in the request. Without a cause: the database's own words
 * show the whole row and not the field.
 */
export function requiredFieldMissing(field: string | undefined): AppError {
  return answer('REQUIRED_FIELD_MISSING', 400, 'Required field missing', field, undefined)
}

/** A CHECK that a row broke. */
export type BrokenCheck = { readonly table: string; readonly constraint: string }

/** The CHECK that an error of the database is about; undefined for other errors. */
export function brokenCheck(error: unknown): BrokenCheck | undefined {
  if (sqlState(error) !== '23514') return undefined
  const { table, constraint } = databaseError(error)
  return table === undefined || constraint === undefined ? undefined : { table, constraint }
}

/** A row that breaks a CHECK of its collection; `constraint` is its name, where the caller may know it. */
export function ruleBroken(collection: string, constraint?: string): AppError {
  const named = constraint === undefined ? {} : { constraint }
  return errors.validation([{ field: collection, message: 'breaks a rule of the collection', rule: 'check', ...named }])
}

const answers: Readonly<Record<string, (error: unknown) => AppError | undefined>> = {
  '23505': (cause) =>
    answer('UNIQUE_VIOLATION', 409, 'Unique constraint violation', 'A record with this value already exists', cause),
  '23503': (cause) =>
    answer('FOREIGN_KEY_VIOLATION', 409, 'Foreign key constraint violation', 'Referenced record does not exist', cause),
  '23001': (cause) =>
    answer('FOREIGN_KEY_VIOLATION', 409, 'Foreign key constraint violation', 'The record is still referenced', cause),
  '23502': (cause) => requiredFieldMissing(columnOf(cause)),
  '23514': (cause) => checkAnswer(cause),
  // `RAISE EXCEPTION` without a state, as in triggers of the operator: the functions of the platform have states of their own.
  P0001: (cause) => raisedAnswer(cause),
  // The one text that PostgreSQL parses for a client: everything else in a statement is ours.
  '42601': (cause) =>
    /jsonpath/.test(databaseError(cause).message ?? '') ? errors.badQuery('malformed jsonpath') : undefined,
  '22': (cause) => answer('INVALID_VALUE', 400, 'Invalid value', problemOfValue(cause), cause),
  '54': (cause) => answer('INVALID_VALUE', 400, 'Invalid value', 'A value is too large for its field', cause),
  // The statement timeout: asked again it would take as long, so it is not a passing fault of ours.
  '57014': (cause) => answer('REQUEST_TIMEOUT', 408, 'The request took too long', null, cause),
  '25P03': (cause) => unavailable(cause),
  '53300': (cause) => unavailable(cause),
  '55P03': (cause) => unavailable(cause),
  '40': (cause) => unavailable(cause),
  '08': (cause) => unavailable(cause),
  '57P': (cause) => unavailable(cause),
  '57P01': (cause) => unavailable(cause),
  '57P02': (cause) => unavailable(cause),
  '57P03': (cause) => unavailable(cause),
  /** Raised by `svc_log.reach()`; the message is the oldest moment of which the history is whole. */
  SV410: (cause) => errors.historyGone(databaseError(cause).message ?? null),
  SV416: () => errors.badQuery('asOf: has not happened yet'),
  /** Raised by `svc_keep_administrator()`, for any writer and any statement. */
  SV409: (cause) => errors.lastAdministrator(cause),
  /** Raised by `svc_take_content()` when the hold on an upload's content is over. */
  SV503: (cause) => errors.unavailable(databaseError(cause).message, cause),
  /** Raised by `svc_refuse()` when a written row would leave the caller's scope. */
  SV403: (cause) => new AppError(403, databaseError(cause).message ?? 'Forbidden', { cause }),
}

function answer(code: string, status: number, message: string, details: unknown, cause: unknown): AppError {
  return new AppError(status, message, { code, details: details ?? null, cause })
}

/** In words of ours: those of the database quote the value. */
const problemOfValue = (cause: unknown): string =>
  problemsOfValues[sqlState(cause) ?? ''] ?? 'A value does not fit its field'

const problemsOfValues: Readonly<Record<string, string>> = {
  '22001': 'A text is too long for its field',
  '22003': 'A number is out of the range of its type',
  '22007': 'A text cannot be read as a date or time',
  '22008': 'A date or time is out of range',
  '22012': 'Division by zero',
  '22021': 'NUL characters are not allowed',
  '2201B': 'A regular expression is malformed',
  '22P02': 'A text cannot be read as the type that it is for',
  '22P05': 'NUL characters are not allowed',
}

function unavailable(cause: unknown): AppError {
  return Object.assign(errors.unavailable(), { cause })
}

/**
 * Value lists of ENUM fields are constraints named `{collection}_{field}_check`, and a collection may declare its own.
 * Those are told by their collection alone where nobody knows what the caller may see: a name may speak of fields.
 */
function checkAnswer(cause: unknown): AppError {
  const { table = '', constraint = '', column, routine } = databaseError(cause)
  // A function raised it as if it were a CHECK, or it is of a domain.
  if (table === '' && routine !== raisingRoutine)
    return answer('INVALID_VALUE', 400, 'Invalid value', 'A value does not fit its field', cause)
  if (table === '' && column === undefined) return raisedAnswer(cause)
  if (table === '') {
    const named = constraint === '' ? {} : { constraint }
    return errors.validation([{ field: column!, message: raisedWords(cause), rule: 'check', ...named }])
  }
  const ofField = constraint.startsWith(`${table}_`) && constraint.endsWith('_check')
  if (!ofField) return ruleBroken(table)
  const field = constraint.slice(table.length + 1, -'_check'.length)
  return errors.validation([{ field, message: 'is not an allowed value', rule: 'check' }])
}

/** In PostgreSQL, the one that carries `RAISE` out. */
const raisingRoutine = 'exec_stmt_raise'

/** The words of a function that refuses are its author's, who means them for people. */
const raisedAnswer = (cause: unknown): AppError => answer('REFUSED_BY_DATABASE', 400, raisedWords(cause), null, cause)

function raisedWords(cause: unknown): string {
  const words = databaseError(cause).message?.trim() || 'The database has refused the change'
  return words.length > longestWords ? `${words.slice(0, longestWords)}…` : words
}

const longestWords = 500

/** The database's own error, whatever wraps it; the innermost one where there is none. */
export function databaseError(error: unknown): Record<string, string | undefined> {
  const { cause, code } = (error ?? {}) as { cause?: unknown; code?: unknown }
  const isOwn = cause === undefined || cause === error || (typeof code === 'string' && stateText.test(code))
  return isOwn ? ((error ?? {}) as Record<string, string | undefined>) : databaseError(cause)
}

/** pg runs the statements of one text that comes without values, and answers with a list. The code makes it a fault in hooks. */
export const severalStatements = (): Error =>
  Object.assign(new Error('the text holds several statements: send them one by one'), { code: 'SEVERAL_STATEMENTS' })
