import { tests } from "../../vitest.shared.js";

export default tests();
