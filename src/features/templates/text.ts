/**
 * The text alternative of an HTML mail: its words, with line breaks where blocks end and the address of every link
 * behind its text. Reads the source once from left to right, so its cost is linear whatever the HTML is.
 */
export function textOf(html: string): string {
  const out: string[] = []
  const links: string[] = []
  for (let at = 0; at < html.length; ) {
    if (html[at] !== '<') {
      const end = orEnd(html, html.indexOf('<', at))
      out.push(decoded(html.slice(at, end).replace(/\s+/g, ' ')))
      at = end
      continue
    }
    const tag = readTag(html, at)
    at = tag.skipsContent ? endOfElement(html, tag) : tag.end
    if (tag.name === 'a') links.push(tag.href)
    else if (tag.name === '/a') out.push(linkSuffix(links.pop(), out))
    else out.push(breaks[tag.name] ?? '')
  }
  return tidy(out.join(''))
}

type Tag = { readonly name: string; readonly href: string; readonly end: number; readonly skipsContent: boolean }

const invisible: ReadonlySet<string> = new Set(['head', 'style', 'script', 'title'])
/** Elements that are skipped when their style hides them: the line that mail programs show beside the subject. */
const hideable: ReadonlySet<string> = new Set(['div', 'span'])

const paragraph = ['p', 'div', 'h1', 'h2', 'h3', 'h4', 'table', 'ul', 'ol', 'blockquote', 'hr']
const breaks: Readonly<Record<string, string>> = {
  br: '\n',
  'br/': '\n',
  li: '\n- ',
  tr: '\n',
  '/tr': '\n',
  '/td': ' ',
  ...Object.fromEntries(paragraph.flatMap((name) => [name, `/${name}`]).map((name) => [name, '\n\n'])),
}

/** A comment is a tag without a name. An unfinished tag ends with the text. */
function readTag(html: string, at: number): Tag {
  if (html.startsWith('<!--', at)) return { name: '', href: '', end: after(html, '-->', at + 4), skipsContent: false }
  const end = endOfTag(html, at + 1)
  const source = html.slice(at + 1, end - 1)
  const name = (/^\/?[a-z0-9]+\/?/i.exec(source)?.[0] ?? '').toLowerCase()
  const href = name === 'a' ? (/\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))/i.exec(source) ?? []) : []
  const address = decoded(href[1] ?? href[2] ?? href[3] ?? '')
  const hidden = hideable.has(name) && /display:\s*none/i.test(source)
  return { name, href: address, end, skipsContent: invisible.has(name) || hidden }
}

/** Past the `>` that ends the tag; one inside quotes does not. */
function endOfTag(html: string, from: number): number {
  let quote = ''
  for (let at = from; at < html.length; at += 1) {
    const char = html.charAt(at)
    if (quote !== '') quote = char === quote ? '' : quote
    else if (char === '"' || char === "'") quote = char
    else if (char === '>') return at + 1
  }
  return html.length
}

function endOfElement(html: string, { name, end }: Tag): number {
  const closing = new RegExp(`</${name}\\b`, 'gi')
  closing.lastIndex = end
  return closing.exec(html) === null ? html.length : endOfTag(html, closing.lastIndex)
}

/** Nothing for links to nowhere and where the text is the address. */
function linkSuffix(href: string | undefined, out: readonly string[]): string {
  if (!href || href.startsWith('#')) return ''
  return out.at(-1)?.trim() === href.trim() ? '' : ` (${href})`
}

const entities: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: ' ',
  copy: '©',
  middot: '·',
  ndash: '–',
  mdash: '—',
  hellip: '…',
  zwnj: '',
  shy: '',
}

function decoded(text: string): string {
  return text.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]{2,8}));/gi, (whole, decimal, hex, name) => {
    const code = decimal === undefined ? Number.parseInt(hex ?? '', 16) : Number(decimal)
    if (name !== undefined) return entities[name.toLowerCase()] ?? whole
    return code > 0x10ffff ? whole : String.fromCodePoint(code)
  })
}

function tidy(text: string): string {
  const lines = text.split('\n').map((line) => line.replace(/[ \t\u00a0]+/g, ' ').trim())
  return `${lines
    .join('\n')
    .replace(/\n{3,}/g, '\n\n')
    .trim()}\n`
}

function after(text: string, mark: string, from: number): number {
  const at = text.indexOf(mark, from)
  return at === -1 ? text.length : at + mark.length
}

function orEnd(text: string, at: number): number {
  return at === -1 ? text.length : at
}
