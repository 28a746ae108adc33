/** The form of the settings, from what the server says that may be set. */

export type Setting = {
  readonly name: string
  /** The expected form of a value. */
  readonly expected: string
  readonly kind: 'line' | 'text' | 'number' | 'switch' | 'json' | 'secret' | 'file'
}

/** The typed texts, by name. */
export type Draft = Readonly<Record<string, string>>

/** A value as it is typed; nothing for none. */
export function textOfSetting({ kind }: Setting, value: unknown): string {
  if (value === null || value === undefined) return ''
  return kind === 'json' ? JSON.stringify(value, null, 2) : String(value)
}

/** The value of a typed text, or its fault. An empty text is no value. */
export function valueOfSetting(
  { kind }: Setting,
  text: string,
): { readonly value?: unknown; readonly problem?: string } {
  if (text === '') return { value: null }
  if (kind === 'switch') return { value: text === 'true' }
  if (kind === 'number')
    return Number.isFinite(Number(text)) ? { value: Number(text) } : { problem: 'This is no number' }
  if (kind !== 'json') return { value: text }
  try {
    return { value: JSON.parse(text) }
  } catch {
    return { problem: 'This is no JSON' }
  }
}

/** In the order of the form; the first that a name matches has it. */
const groups: readonly (readonly [title: string, names: RegExp])[] = [
  ['Project', /^(?!.*_Id$)(project_|app_|secondary_|title$|description$|keywords$)/],
  ['Images', /_Id$/],
  ['Mail', /^(email_|from_email_|smtp_)/],
  ['Language and region', /^(timezone|language|date_format|currency)$/],
  ['More', /(?:)/],
]

/** The groups of settings, each with at least one. */
export function groupsOf(settings: readonly Setting[]): readonly (readonly [string, readonly Setting[]])[] {
  const titleOf = ({ name }: Setting) => groups.find(([, names]) => names.test(name))![0]
  return groups
    .map(([title]) => [title, settings.filter((setting) => titleOf(setting) === title)] as const)
    .filter(([, members]) => members.length > 0)
}

/** A name as people write it: `smtp_from_address` is "SMTP from address". */
export function labelOf(name: string): string {
  const words = name.replace(/_Id$/, '').replace(/_/g, ' ')
  const text = words.replace(/\b(smtp|url)\b/g, (word) => word.toUpperCase())
  return text[0]!.toUpperCase() + text.slice(1)
}
