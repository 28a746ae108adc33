import type { ConsoleExtension } from 'daybook/extensions'

/**
 * A page of the console that lists and edits rows of `note`, and two editors for fields: `editor: 'notes/colour'` for text such
 * as #0b6e59, `editor: 'notes/markdown'` for long text with a preview.
 */
const notes: ConsoleExtension = {
  title: 'Notes',
  page: { file: 'page.html' },
  editors: { colour: { file: 'colour.html' }, markdown: { file: 'markdown.html' } },
  collections: { read: ['note'], write: ['note'] },
}
export default notes
