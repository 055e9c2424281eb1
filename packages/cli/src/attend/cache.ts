export async function throughCache(..._args: unknown[]): Promise<never> {
  throw new Error("stub");
}
