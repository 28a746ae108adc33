import { type Family, families } from '../src/config/families.ts'
import type { Fallback, Group, Variable } from '../src/config/variable.ts'
import { groups, type VariableValues } from '../src/config/variables.ts'

/** The text of docs/config.md: the table of variables and families, one section per group. */
export function configDocument(): string {
  const sections = Object.entries(groups).map(([key, group]) =>
    section(group, families[key as keyof VariableValues] ?? []),
  )
  return `${[introduction, ...sections].join('\n\n')}\n`
}

const introduction = `# Configuration

<!-- Generated from src/config/variables.ts and src/config/families.ts by \`npm run gen\`. Do not edit. -->

Daybook is configured by environment variables. A file \`.env\` in the working directory is read too; a variable of the
process wins over the file's. Everything is read once, at start: if something is missing or wrong, the process lists
all problems by name and ends with an exit code other than 0.

- An empty variable counts as unset. Unknown variables are ignored; a likely misspelling is reported as a warning.
- Booleans are \`true\`/\`false\`, \`1\`/\`0\`, \`yes\`/\`no\` or \`on\`/\`off\`; words are read without regard to case.
- Lists are separated by commas; blanks around entries, empty entries and repetitions are dropped.
- Sizes take a unit (\`20mb\`, \`1.5gb\`; powers of 1024); what a bare number means is said beside each variable.
- "In production" means \`NODE_ENV=production\`.
- Names with \`<…>\` are families: one set of variables for each name in the list that enables them. The name is written
  in upper case, with \`_\` for \`-\`: \`MAIL_SENDERS_ENABLED=eu-mail\` is configured by \`EU_MAIL_SMTP_HOST\` and so on.
  An incomplete mail sender or social provider is left out with a warning.
- 🔒 marks secrets; they are never printed.`

function section(group: Group, members: readonly Family[]): string {
  const rows = [
    ...Object.values(group.variables).map((variable) => row(variable, variable.name)),
    ...members.flatMap(({ placeholder, variables }) =>
      Object.values(variables).map((variable) => row(variable, placeholder + variable.name)),
    ),
  ]
  return [`## ${group.title}`, '', '| Variable | Meaning | Default | Values |', '|---|---|---|---|', ...rows].join('\n')
}

function row(variable: Variable<unknown>, name: string): string {
  const cells = [
    `\`${name}\`${variable.secret ? ' 🔒' : ''}`,
    variable.doc,
    defaultText(variable.fallback),
    variable.parser.values,
  ]
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
}

function defaultText(fallback: Fallback | undefined): string {
  if (fallback === undefined || fallback === '') return 'none'
  if (typeof fallback === 'string') return `\`${fallback}\``
  const { otherwise, ...special } = fallback
  const cases = Object.entries(special).map(([environment, text]) => `\`${text}\` ${environmentNames[environment]}`)
  return [...cases, `otherwise \`${otherwise}\``].join(', ')
}

const environmentNames: Record<string, string> = { production: 'in production', test: 'with `NODE_ENV=test`' }
