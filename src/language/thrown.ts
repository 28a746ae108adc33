/**
 * The words of a thrown value, which may be anything: those of its `message`, else what it is as text.
 *
 * @throws what the value throws when it is read
 */
export function wordsOf(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message || thrown.name
  if (thrown === null || typeof thrown !== 'object') return String(thrown)
  const { message } = thrown as { readonly message?: unknown }
  if (typeof message === 'string' && message !== '') return message
  const text = String(thrown)
  return text.startsWith('[object ') ? (JSON.stringify(thrown) ?? text) : text
}
