import { STATUS_CODES } from './language/node-http.ts'

/**
 * An error that the caller of the API may see: its status, its code, its words and its details are part of the
 * interface. Everything else that is thrown becomes a 500 with a correlation id.
 */
export class AppError extends Error {
  /** HTTP status, 400 to 599. */
  readonly status: number
  /** Stable machine-readable word, e.g. `REGISTRATION_DISABLED`; without one of its own the status' name, e.g. `NOT_FOUND`. */
  readonly code: string
  /** Shown under `details`; never holds SQL, a stack or another tenant's data. */
  readonly details: unknown
  /** Further members of an authentication body, e.g. `{ requiresEmailVerification: true }`. */
  readonly members: Readonly<Record<string, unknown>> | undefined
  /** Extra response headers, e.g. `Retry-After`. */
  readonly headers: Readonly<Record<string, string>> | undefined

  constructor(status: number, message: string, more: AppErrorOptions = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause })
    this.name = 'AppError'
    this.status = status
    this.code = more.code ?? codeOfStatus(status)
    this.details = more.details
    this.members = more.members
    this.headers = more.headers
  }
}

/** The message with its details, where those are words. */
export const inFull = ({ message, details }: AppError): string =>
  typeof details === 'string' ? `${message}: ${details}` : message

/** `NOT_FOUND` for 404. */
function codeOfStatus(status: number): string {
  const name = STATUS_CODES[status] ?? (status < 500 ? 'Bad Request' : 'Internal Server Error')
  return name.toUpperCase().replaceAll(/[^A-Z]+/g, '_')
}

type AppErrorOptions = {
  code?: string
  details?: unknown
  members?: Record<string, unknown>
  headers?: Record<string, string>
  cause?: unknown
}

/** The words of refusals that the database may have to say: an error made for its words alone costs its stack. */
export const refusals = {
  action: (action: Action, collection: string) => `You don't have permission to ${action} items in '${collection}'`,
  item: (action: Exclude<Action, 'create'>) => `Item not found or you don't have permission to ${action} it`,
  field: (action: Action, path: string) => `You don't have permission to ${action} field: ${path}`,
} as const

/** Why a credential opens nothing, in codes that clients rely on. */
export type CredentialFault = 'INVALID_TOKEN' | 'SESSION_ENDED' | 'INVALID_API_KEY' | 'WRONG_AUDIENCE' | 'HEADER_ONLY'

const credentialFaults: Readonly<Record<CredentialFault, string>> = {
  INVALID_TOKEN: 'Invalid or expired token',
  SESSION_ENDED: 'The session has ended',
  INVALID_API_KEY: 'Invalid or expired API key',
  WRONG_AUDIENCE: 'The token is for another resource',
  HEADER_ONLY: 'API keys and tokens of programs are accepted in the Authorization header only',
}

/** The shared vocabulary: each function is one row of the specification's error tables. */
export const errors = {
  badQuery: (details?: unknown) => new AppError(400, 'Invalid query parameters', { code: 'BAD_QUERY', details }),
  badBody: (message: string, details?: unknown) => new AppError(400, message, { details }),
  invalidUtf8: (what: string) => new AppError(400, `${what} is not valid UTF-8`, { code: 'INVALID_UTF8' }),
  tooManyValues: () => new AppError(413, 'Request body holds too many values', { code: 'TOO_MANY_VALUES' }),
  unknownCollection: (name: string) => new AppError(404, `Model ${name} not found`, { code: 'UNKNOWN_COLLECTION' }),
  unauthorized: (message = 'Authentication required') => new AppError(401, message),
  /** A credential that opens nothing (RFC 6750 §3). `words` where a route has its own. */
  badCredential: (fault: CredentialFault, words?: string, members?: Record<string, unknown>) =>
    new AppError(401, words ?? credentialFaults[fault], {
      code: fault,
      headers: { 'www-authenticate': `Bearer error="invalid_token", error_description="${credentialFaults[fault]}"` },
      ...(members && { members }),
    }),
  sessionNeeded: () =>
    new AppError(403, 'API keys are not accepted here. Please sign in.', { code: 'API_KEY_NOT_ACCEPTED' }),
  tokenNotAccepted: () =>
    new AppError(403, 'Tokens of programs are not accepted here. Please sign in.', { code: 'SESSION_NEEDED' }),
  /** A client's token that was not granted enough (RFC 6750 §3.1). */
  insufficientScope: (scope: string) =>
    new AppError(403, `The token does not have the scope '${scope}'`, {
      code: 'INSUFFICIENT_SCOPE',
      headers: { 'www-authenticate': `Bearer error="insufficient_scope", scope="${scope}"` },
    }),
  previewOnly: () =>
    new AppError(403, 'This is a preview as another user or role: nothing can be changed', {
      code: 'PREVIEW_READ_ONLY',
    }),
  previewHides: () =>
    new AppError(403, 'A preview shows no accounts, sessions and credentials', { code: 'PREVIEW_HIDES_THIS' }),
  adminOnly: () => new AppError(403, 'Access denied. Administrators only.'),
  actionDenied: (action: Action, collection: string) => new AppError(403, refusals.action(action, collection)),
  fieldDenied: (action: Action, path: string) => new AppError(403, refusals.field(action, path)),
  searchDenied: (path: string) =>
    new AppError(403, `You don't have permission to search field: ${path}`, { code: 'SEARCH_NOT_GRANTED' }),
  relationDenied: (action: Action, path: string) =>
    new AppError(403, `You don't have permission to ${action} relation: ${path}`),
  /** A trigger of the operator's database has kept a row from being created, without a word of its own. */
  notKept: () =>
    new AppError(403, 'The database has not kept the item: a trigger of its table left it out', {
      code: 'REFUSED_BY_DATABASE',
    }),
  itemDenied: (action: Exclude<Action, 'create'>) => new AppError(403, refusals.item(action)),
  validation: (problems: readonly FieldProblem[]) =>
    new AppError(400, `Validation failed: ${problems.map((p) => `${p.field}: ${p.message}`).join('; ')}`, {
      code: 'VALIDATION_ERROR',
      details: { code: 'VALIDATION_ERROR', errors: problems },
    }),
  keyReused: () =>
    new AppError(409, 'Idempotency-Key was used for another request', { code: 'IDEMPOTENCY_KEY_REUSED' }),
  keptAnswerLost: () =>
    new AppError(409, 'The request was done before, and its answer cannot be read any more: SECRET_KEY was replaced', {
      code: 'IDEMPOTENCY_ANSWER_LOST',
    }),
  /** `oldest` as `oldestMoment` tells it. */
  historyGone: (oldest: string | null) =>
    new AppError(410, oldest === null ? 'There is no history' : `The history begins at ${oldest}`, {
      code: 'HISTORY_GONE',
      details: { oldest },
    }),
  lastAdministrator: (cause?: unknown) =>
    new AppError(409, 'Somebody has to stay: this is the last active administrator. Make another one first.', {
      code: 'LAST_ADMINISTRATOR',
      cause,
    }),
  conflict: (message: string, details?: unknown) => new AppError(409, message, { details }),
  tableDiffers: (cause: unknown) =>
    new AppError(500, 'A table differs from its definition', { code: 'TABLE_DIFFERS', cause }),
  unavailable: (message = 'Service temporarily unavailable', cause?: unknown) =>
    new AppError(503, message, { headers: { 'retry-after': '1' }, cause }),
  /**
   * Whether it was written is not known, so the client is not told to send it again as it is. With `isWritten` it was, and only
   * its answer is lost.
   */
  outcomeUnknown: (cause: unknown, isWritten = false) =>
    new AppError(503, isWritten ? writtenWithoutAnswer : perhapsWritten, { code: 'OUTCOME_UNKNOWN', cause }),
} as const

const perhapsWritten =
  'The database was lost while this was being written, and it is not known whether it was done. ' +
  'Repeat the request with the same Idempotency-Key, or read before you send it again.'
const writtenWithoutAnswer =
  'This was written, but the database was lost before it could be answered. Read instead of sending it again.'

export type Action = 'create' | 'read' | 'update' | 'delete'
export type FieldProblem = {
  field: string
  message: string
  value?: unknown
  rule: string
  /** The name of a declared rule of the collection. */
  constraint?: string
}
