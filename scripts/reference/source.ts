import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import ts from 'typescript'

const root = join(import.meta.dirname, '../..')

function parsed(path: string): ts.SourceFile {
  return ts.createSourceFile(path, readFileSync(join(root, path), 'utf8'), ts.ScriptTarget.Latest, true)
}

/** A member of an object type: its name, its type as written and the comment before it. */
export type Member = { readonly name: string; readonly type: string; readonly comment: string }

/** The members of a type alias, in their order. */
export function membersOfType(path: string, name: string): readonly Member[] {
  const file = parsed(path)
  const alias = file.statements.find((node) => ts.isTypeAliasDeclaration(node) && node.name.text === name)
  if (alias === undefined || !ts.isTypeAliasDeclaration(alias) || !ts.isTypeLiteralNode(alias.type))
    throw new Error(`${path} has no object type ${name}`)
  return alias.type.members.filter(ts.isPropertySignature).map((member) => ({
    name: (member.name as ts.StringLiteral).text,
    type: member.type!.getText(file).replaceAll(/\s+/g, ' '),
    comment: commentOf(member),
  }))
}

/** The entries of a constant of shapes, in their order: of each the names of its members as its type. */
export function entriesOfShapes(path: string, name: string): readonly Member[] {
  const file = parsed(path)
  const shapes = constantsOf(file).find((node) => node.name.getText(file) === name)?.initializer
  const literal = shapes === undefined ? undefined : bare(shapes)
  if (literal === undefined || !ts.isObjectLiteralExpression(literal)) throw new Error(`${path} has no shapes ${name}`)
  return literal.properties.filter(ts.isPropertyAssignment).map((entry) => ({
    name: (entry.name as ts.Identifier | ts.StringLiteral).text,
    type: ts.isCallExpression(entry.initializer)
      ? [...propertiesOf(entry.initializer.arguments[0]!).keys()].map((member) => `\`${member}\``).join(', ')
      : '',
    comment: commentOf(entry),
  }))
}

/** Without `as const satisfies …`. */
function bare(node: ts.Expression): ts.Expression {
  return ts.isSatisfiesExpression(node) || ts.isAsExpression(node) ? bare(node.expression) : node
}

const commentOf = (node: ts.Node): string =>
  ts
    .getJSDocCommentsAndTags(node)
    .map(({ comment }) => ts.getTextOfJSDocComment(comment) ?? '')
    .join(' ')

function propertiesOf(node: ts.Node): ReadonlyMap<string, ts.Expression> {
  if (!ts.isObjectLiteralExpression(node)) return new Map()
  return new Map(
    node.properties
      .filter(ts.isPropertyAssignment)
      .map(({ name, initializer }) => [(name as ts.Identifier | ts.StringLiteral).text, initializer]),
  )
}

/** A place that refuses with a code of its own. */
export type Refusal = { readonly code: string; readonly status: string; readonly message: string }

/** An invalid credential is refused with one of these codes, in the words of the table. */
function credentialFaults(): Refusal[] {
  const file = parsed('src/errors.ts')
  const faults = constantsOf(file).find(({ name }) => name.getText(file) === 'credentialFaults')?.initializer
  if (faults === undefined) throw new Error('src/errors.ts has no credentialFaults')
  return [...propertiesOf(faults)].map(([code, words]) => ({ code, status: '401', message: wordsOf(words, file) }))
}

/** Every code in the source, with the status and the words that stand beside it; values in words are `…`. */
export function refusals(): readonly Refusal[] {
  const files = readdirSync(join(root, 'src'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .sort()
  return [...credentialFaults(), ...files.flatMap((path) => refusalsIn(parsed(path)))]
}

function refusalsIn(file: ts.SourceFile): Refusal[] {
  const found: Refusal[] = []
  const note = (code: ts.Node | undefined, status: ts.Node | undefined, message: ts.Node | undefined) => {
    const word = wordsOf(code, file)
    const isCode = /^[A-Z][A-Z\d]*(_[A-Z\d]+)*$/.test(word) && word.length > 3
    if (isCode && message !== undefined)
      found.push({ code: word, status: wordsOf(status, file), message: wordsOf(message, file) })
  }
  const visit = (node: ts.Node): void => {
    if (ts.isObjectLiteralExpression(node)) {
      const members = propertiesOf(node)
      const { parent } = node
      const isOption = ts.isNewExpression(parent) && parent.expression.getText(file) === 'AppError'
      const [status, message] = isOption ? (parent.arguments ?? []) : [members.get('status'), members.get('message')]
      note(members.get('code'), status, message)
    }
    // Of the table of the database's refusals.
    if (ts.isCallExpression(node) && node.expression.getText(file) === 'answer') {
      const [code, status, message] = node.arguments
      note(code, status, message)
    }
    ts.forEachChild(node, visit)
  }
  visit(file)
  return found
}

/** A text as it is written, with `…` for what is put in; of a constant that of its declaration in the same file. */
function wordsOf(node: ts.Node | undefined, file: ts.SourceFile): string {
  if (node === undefined) return ''
  if (ts.isStringLiteralLike(node) || ts.isNumericLiteral(node)) return node.text
  if (ts.isTemplateExpression(node))
    return [node.head.text, ...node.templateSpans.map(({ literal }) => literal.text)].join('…')
  if (ts.isConditionalExpression(node)) return wordsOf(node.whenTrue, file) || wordsOf(node.whenFalse, file)
  if (ts.isBinaryExpression(node)) return wordsOf(node.left, file) + wordsOf(node.right, file)
  if (!ts.isIdentifier(node)) return ''
  const declared = constantsOf(file).find(({ name }) => name.getText(file) === node.text)?.initializer
  return declared !== undefined && !ts.isIdentifier(declared) ? wordsOf(declared, file) : ''
}

const constantsOf = (file: ts.SourceFile): readonly ts.VariableDeclaration[] =>
  file.statements.filter(ts.isVariableStatement).flatMap(({ declarationList }) => [...declarationList.declarations])
