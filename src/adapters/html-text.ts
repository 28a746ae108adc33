import type { HtmlToTextOptions, SelectorDefinition } from 'html-to-text'
import { onFirstUse } from '../language/once.ts'

const htmlToText = onFirstUse<typeof import('html-to-text')>('html-to-text')

/**
 * The text alternative of an HTML mail: its words, a blank line between blocks, the address of every link after its
 * text. Styles, images and elements with `display: none` are left out, such as the line that mail programs show beside
 * the subject.
 */
export function textOfHtml(html: string): string {
  convert ??= htmlToText().compile(options)
  return `${convert(upToDepth(html))
    .replace(/\n{3,}/g, '\n\n')
    .trim()}\n`
}

let convert: ((html: string) => string) | undefined

const apart = { leadingLineBreaks: 2, trailingLineBreaks: 2 }
const blocks = ['p', 'div', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'blockquote', 'table', 'hr']
const lists = ['ul', 'ol']
const skipped = ['img', 'head', 'title', '[style*="display:none" i]', '[style*="display: none" i]']
const options: HtmlToTextOptions = {
  wordwrap: false,
  whitespaceCharacters: ' \t\r\n\f\u200b\u00a0',
  limits: { maxDepth: 500, ellipsis: '' },
  formatters: {
    cell(element, walk, builder) {
      walk(element.children, builder)
      builder.addInline(' ')
    },
  },
  selectors: [
    ...blocks.map((selector): SelectorDefinition => ({ selector, format: 'block', options: apart })),
    ...lists.map((selector) => ({ selector, format: 'unorderedList', options: { ...apart, itemPrefix: '- ' } })),
    ...skipped.map((selector) => ({ selector, format: 'skip' })),
    { selector: 'tr', format: 'block' },
    { selector: 'td', format: 'cell' },
    { selector: 'th', format: 'cell' },
    { selector: 'a', options: { linkBrackets: ['(', ')'], hideLinkHrefIfSameAsText: true, noAnchorUrl: true } },
  ],
}

/** The parser's cost grows with the square of the depth; this many open tags cost a fifth of a second. */
const mostOpenTags = 20_000
const tag = /<(\/?)(?!(?:br|img|hr|col|meta|link|input|wbr|source|area|base)\b)[a-z]/gi

/** The HTML up to where more tags are open than in any mail. Unclosed ones count, though the parser may close them. */
function upToDepth(html: string): string {
  let open = 0
  for (const { index, 1: slash } of html.matchAll(tag)) {
    open = slash === '' ? open + 1 : Math.max(0, open - 1)
    if (open > mostOpenTags) return html.slice(0, index)
  }
  return html
}
