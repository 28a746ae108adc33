/** The words of a thrown value, which may be anything and even throw when it is read: those of its `message`, else what it is as text. */
export function wordsOf(thrown: unknown): string {
  try {
    return read(thrown)
  } catch {
    return 'something was thrown that cannot be shown'
  }
}

function read(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message || thrown.name
  if (thrown === null || typeof thrown !== 'object') return String(thrown)
  const { message } = thrown as { readonly message?: unknown }
  if (typeof message === 'string' && message !== '') return message
  const text = String(thrown)
  return text.startsWith('[object ') ? (JSON.stringify(thrown) ?? text) : text
}
