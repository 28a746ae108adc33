export type Explanation = {
  readonly title: string
  /** Each problem of a refusal that names several. */
  readonly details: readonly string[]
  /** The remedy. */
  readonly advice: string | undefined
  readonly requestId: string | undefined
}

/** The remedy of a refusal, by its code or status. */
const adviceFor: Readonly<Record<string, string>> = {
  NO_ANSWER: 'Check that the server runs and that you are online, then try again.',
  CROSS_SITE_REQUEST:
    'The server does not take this address for its own: set BASE_URL, or have the proxy pass on Host.',
  FRESH_PROOF_REQUIRED: 'Sign in again, then repeat this within a few minutes.',
  FRESH_PROOF_REFUSED: 'Check the password or the code, then try again.',
  SESSION_ENDED: 'Sign in again in another tab, then repeat this here: what you have typed stays.',
  SESSION_CHANGED:
    'Nothing was sent, and what you have typed stays. Switch back in the other tab and repeat it, or reload this page to go on as who you are now.',
  HISTORY_GONE: 'Choose a later moment: the log does not reach so far back.',
  '401': 'Sign in again.',
  '404': 'It may have been deleted or renamed. Go back to the list.',
  '408': 'The server ended the statement. Narrow the filter, or sort by an indexed field.',
  FILE_TOO_LARGE: 'Choose a smaller file: MAX_UPLOAD_FILE_SIZE sets the limit.',
  STORAGE_QUOTA: 'Delete files that nobody needs: STORAGE_QUOTA_TENANT sets the limit.',
  UNDO_CONFLICT: 'Open the request in the log: it shows which, and can undo them all the same.',
  '412': 'Somebody has written it meanwhile. Load it again and repeat your change.',
  '413': 'Send less at once.',
  '429': 'The server limits how often this is tried. Wait a moment.',
  '500': 'The server could not do it. Its log has the cause under the id below.',
  '503': 'The server is busy or starting. Try again in a moment.',
}

/** Refusals of permissions; all others with 403 have a code of their own. */
const ofPermissions = new Set(['FORBIDDEN', 'SEARCH_NOT_GRANTED'])

const grantable = 'Your role does not allow this. An administrator can grant it on the permissions page.'

type Refusal = {
  readonly message: string
  readonly code: string
  readonly status: number
  readonly details: unknown
  readonly requestId: string | undefined
}

/** A refusal of the server in words for a person. To administrators nobody can grant anything. */
export function inWords(refusal: Refusal, isAdmin = false): Explanation {
  const { message, code, status, details: named, requestId } = refusal
  const details = detailsOf(named)
  const repeated = `: ${details.join('; ')}`
  return {
    title: details.length > 0 && message.endsWith(repeated) ? message.slice(0, -repeated.length) : message,
    details,
    advice: adviceFor[code] ?? adviceFor[String(status)] ?? otherAdvice(refusal, details.length > 0, isAdmin),
    requestId: status >= 500 ? requestId : undefined,
  }
}

function otherAdvice({ code, status }: Refusal, hasDetails: boolean, isAdmin: boolean): string | undefined {
  if (status === 403 && ofPermissions.has(code) && !isAdmin) return grantable
  return status === 409 && hasDetails ? inTheWay : undefined
}

const inTheWay = 'Something else stands in the way: look at what it names, then try again.'

/** What it says of each of these fields. */
export function ofFields({ title, details }: Explanation, names: readonly string[]): Readonly<Record<string, string>> {
  const found = names.map((name) => [name, details.filter((detail) => isOf(detail, name))] as const)
  return Object.fromEntries(
    found
      .filter(([, own]) => own.length > 0)
      .map(([name, own]) => [name, own.map((detail) => detail.slice(name.length + 2) || title).join('; ')]),
  )
}

/** Whether a detail of a refusal is about a field; one that says no more than its name is, too. */
export const isOf = (detail: string, field: string): boolean => detail === field || detail.startsWith(`${field}: `)

/** Refusals name their problems as a text, a list, or an object with a list of `errors`. */
function detailsOf(details: unknown): readonly string[] {
  if (typeof details === 'string') return [details]
  if (Array.isArray(details)) return details.flatMap(detailsOf)
  if (typeof details !== 'object' || details === null) return []
  const { errors, path, field, collectionName, error, message = error } = details as Record<string, unknown>
  if (Array.isArray(errors)) return errors.flatMap(detailsOf)
  if (typeof message !== 'string') return []
  const place = [path, field, collectionName].find((one) => typeof one === 'string' && one !== '')
  return [place === undefined ? message : `${String(place)}: ${message}`]
}
