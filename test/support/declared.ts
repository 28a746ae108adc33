/** The entries of a definition's fields that were declared: without what the server adds by itself. */
export function declaredOf(fields: Readonly<Record<string, any>>): Record<string, any> {
  return Object.fromEntries(Object.entries(fields).filter(([, json]) => json.SystemGenerated !== 'true'))
}
