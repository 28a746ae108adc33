const names = new Map<string, string>()
const namesAtMost = 2000
let counter = 0

/**
 * A short name for the statement text `key`: PostgreSQL cuts names at 63 bytes, and a named statement is planned once
 * per connection. A text that falls out of the table gets a new name, so a name never stands for two texts.
 */
export function statementName(key: string): string {
  let name = names.get(key)
  if (name === undefined) {
    if (names.size >= namesAtMost) names.delete(names.keys().next().value!)
    counter += 1
    name = `q${counter}`
    names.set(key, name)
  }
  return name
}
